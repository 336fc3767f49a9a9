"""A rank finds out how its interpreter was started; each case is a start of Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ddp_repro
from ddp_repro.run import determinism
from ddp_repro.run.determinism import Determinism

pytestmark = pytest.mark.worlds


def run_python(code: str, *flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"} | variables
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_module_serves_a_launcher_without_torch() -> None:
    code = (
        "import sys; from ddp_repro.run.determinism import *; load_profile('debug'); assert 'torch' not in sys.modules"
    )
    assert run_python(code).returncode == 0


VERIFY = """
from ddp_repro.errors import ReproError
from ddp_repro.run.determinism import *
{before}
try:
    verify_environment(Determinism(hash_seed={seed}), {threads})
    print("right")
except ReproError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("asked", "before", "flags", "variables", "said"),
    [
        ((0, None), "", (), {"PYTHONHASHSEED": "0"}, "right"),
        ((7, None), "", (), {"PYTHONHASHSEED": "7"}, "right"),
        ((0, None), "", (), {}, "PYTHONHASHSEED is not set"),
        ((0, None), "", (), {"PYTHONHASHSEED": "7"}, "PYTHONHASHSEED is 7"),
        ((0, None), "import os; os.environ['PYTHONHASHSEED'] = '0'", (), {}, "PYTHONHASHSEED is not set"),
        ((0, None), "", ("-E",), {"PYTHONHASHSEED": "0"}, "told to ignore"),
        ((None, 2), "", (), determinism.environment(Determinism(), 2), "right"),
        ((None, 2), "", (), determinism.environment(Determinism(), 3), "OMP_NUM_THREADS is 3"),
        (
            (None, 2),
            "import torch; torch.set_num_threads(1)",
            (),
            determinism.environment(Determinism(), 2),
            "torch uses 1 threads",
        ),
    ],
)
def test_a_rank_verifies_how_it_was_started(
    asked: tuple[int | None, int | None], before: str, flags: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    seed, threads = asked
    code = VERIFY.format(before=before, seed=seed, threads=threads)
    if flags:  # -E ignores PYTHONPATH as well
        code = f"import sys; sys.path.insert(0, {str(Path(ddp_repro.__file__).parents[1])!r})\n{code}"
    done = run_python(code, *flags, **variables)
    assert said in done.stdout, done.stderr
