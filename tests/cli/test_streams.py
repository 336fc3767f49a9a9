"""Whatever becomes of stdout and stderr, a command ends with the code of its verdict and without a traceback."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.synthetic import Script, changed, ranks, write_launch

CLEAN = ranks(Script(world_size=3))
ODD = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="grad_local", name="conv.bias")}
ASCII = "LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, second in (("mél", CLEAN), ("odd", ODD)):
        for at, one in enumerate((CLEAN, second)):
            write_launch(root / name, at, one)
    return root


def shell(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, errors="replace", timeout=60, check=False
    )


HOW = {
    "ascii": f"env {ASCII} {{compare}}",
    "no stdout": "{compare} >&-",
    "no stderr": "{compare} 2>&-",
    "nothing": "{compare} <&- >&- 2>&-",
    "full": "{compare} >/dev/full 2>/dev/full",
    "cut": "({compare}; echo $? >code) | head -1; exit $(<code)",
}
MEL = "'\"mél\"'"


@pytest.mark.parametrize(
    ("how", "run", "code"),
    [*((how, "odd", 1) for how in HOW), ("ascii", MEL, 0), ("cut", MEL, 0), ("nothing", "no", 2), ("cut", "no", 2)],
)
def test_the_code_is_that_of_the_verdict(how: str, run: str, code: int, folder: Path) -> None:
    compare = f"{shlex.quote(sys.executable)} -m ddp_repro.compare runs={run}"
    done = shell(HOW[how].format(compare=compare), folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr


def test_what_ascii_lacks_is_told_otherwise(folder: Path) -> None:
    done = shell(f"env {ASCII} {sys.executable} -m ddp_repro.compare runs=odd", folder)
    assert done.stdout.isascii()
    assert "..., level same-stack" in done.stdout


def test_output_that_is_lost_is_said_but_not_to_a_reader_that_left(folder: Path) -> None:
    compare = f"{sys.executable} -m ddp_repro.compare runs=odd"
    assert "stdout could not be written: No space left on device" in shell(f"{compare} >/dev/full", folder).stderr
    assert shell(f"{compare} | true", folder).stderr == ""


@pytest.mark.parametrize("words", ["ddp_repro.check --help", "ddp_repro.record --cfg job", "ddp_repro.entry"])
def test_help_may_be_cut(words: str, folder: Path) -> None:
    done = shell(f"({sys.executable} -m {words}; echo $? >code) | head -1; exit $(<code)", folder)
    assert done.returncode == 0
    assert done.stderr == ""
