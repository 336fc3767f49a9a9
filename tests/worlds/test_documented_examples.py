"""What docs/your-own-training.md shows is run as it is shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.worlds

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_factory_of_ones_own_is_checked(tmp_path: Path) -> None:
    own = ("workload._target_=curve.build", "workload.hidden=64")
    done = run("-m", "ddp_repro.check", "nproc=3", *own, "train.max_steps=5", f"output.dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "REPRODUCIBLE"


def test_a_script_of_ones_own_repeats_in_bits() -> None:
    script = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train_with_seeds.py")
    results = []
    for _ in range(2):
        done = run(*script)
        assert done.returncode == 0, done.stderr
        results.append(dict(re.findall(r"rank (\d): (0x[0-9a-f.]+p[-+]\d+)", done.stdout)))  # lines of ranks may mix
    assert results[0] == results[1]
    assert sorted(results[0]) == ["0", "1"]
    assert results[0]["0"] == results[0]["1"], "replicas differ"
