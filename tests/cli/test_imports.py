"""Imports run one way, and the rules that say so catch what goes the other way."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(folder: Path) -> "subprocess.CompletedProcess[str]":
    program = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_imports_run_one_way() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("judge/findings.py", "import torch", "Judging, reporting and traces do without torch and Hydra"),
        ("trace/seal.py", "import omegaconf", "Judging, reporting and traces do without torch and Hydra"),
        ("judge/findings.py", "import ddp_repro.observe.digest", "Imports run one way"),
        ("trace/seal.py", "import ddp_repro.judge.findings", "Imports run one way"),
        ("run/world.py", "import ddp_repro.judge.findings", "What makes a launch neither judges nor reports it"),
        ("observe/digest.py", "import ddp_repro.run.seeding", "Probes watch any training, so they know none"),
        ("run/world.py", "import hydra", "Only cli knows Hydra"),
    ],
)
def test_an_import_the_other_way_is_caught(tmp_path: Path, file: str, line: str, broken: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.npz")
    shutil.copytree(ROOT / "ddp_repro", tmp_path / "ddp_repro", ignore=ignored)
    shutil.copy(ROOT / ".importlinter", tmp_path)
    module = tmp_path / "ddp_repro" / file
    module.write_text(module.read_text() + f"\n{line}\n")

    done = lint(tmp_path)

    assert done.returncode == 1, done.stdout
    assert any(
        line.startswith(broken[:60]) and "BROKEN" in "".join(done.stdout.splitlines()[n : n + 2])
        for n, line in enumerate(done.stdout.splitlines())
    ), done.stdout
