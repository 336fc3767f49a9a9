"""The scripts of launch/ with stand-ins for Python, pip and the run: what they make, say, pass on and exit with."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTEST = "'-m', 'pytest', '-n', '2', '--dist', 'loadfile'"
TOOLS = (
    "bash",
    "cat",
    "date",
    "dirname",
    "find",
    "flock",
    "ls",
    "mkdir",
    "mktemp",
    "rm",
)

# Stands for the interpreter of the system: real, but its "-m venv" makes a folder with the interpreter below.
SYSTEM_PYTHON = """#!{python}
import os, sys
{patch}
if sys.argv[1:3] == ["-m", "venv"]:
    os.makedirs(sys.argv[3] + "/bin", exist_ok=True)
    os.symlink({venv_python!r}, sys.argv[3] + "/bin/python")
    open({log!r}, "a").write("venv\\n")
elif sys.argv[1] == "-c":
    code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
    exec(code)
else:
    print("Python 3.9.2")
"""

# Stands for the interpreter of the environment: notes how it was called; what stands for the run is "run.py".
VENV_PYTHON = """#!{python}
import os, sys
arguments = sys.argv[1:]
if arguments[:2] == ["-m", "pip"]:
    open({log!r}, "a").write("pip " + arguments[-1].rpartition("/")[2] + "\\n")
    print("noise of pip")
    for tool in ("ruff", "mypy", "lint-imports", "shellcheck"):
        path = os.path.join(os.path.dirname(sys.argv[0]), tool)
        script = ["#!/bin/sh", "echo called " + tool + " $*", "[ x$1 != xformat ] || exit $FAILING"]
        open(path, "w").write("\\n".join(script))
        os.chmod(path, 0o755)
    sys.exit(os.path.exists({fail!r}))
open({log!r}, "a").write(repr(arguments) + "\\n")
if os.path.exists({run!r}):
    exec(open({run!r}).read())
"""


class Checkout:
    """A copy of the scripts with stand-ins, and the only programs that they find."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.pip_fails = folder / "pip-fails"
        self.run = folder / "run.py"
        self.venv = self.root / ".venv"
        shutil.copytree(ROOT / "launch", self.root / "launch")
        shutil.copytree(ROOT / ".ci", self.root / ".ci")
        shutil.copytree(ROOT / "slurm", self.root / "slurm")
        for name in ("constraints.txt", "pyproject.toml"):
            (self.root / name).write_text(name)
        self.bin.mkdir()
        for tool in TOOLS:
            if (found := shutil.which(tool)) is not None:
                (self.bin / tool).symlink_to(found)
        self._venv_python = folder / "venv-python"
        write_program(
            self._venv_python,
            VENV_PYTHON.format(python=sys.executable, log=str(self.log), fail=str(self.pip_fails), run=str(self.run)),
        )
        self.install_python()

    def install_python(self, patch: str = "") -> None:
        program = SYSTEM_PYTHON.format(
            python=sys.executable, patch=patch, venv_python=str(self._venv_python), log=str(self.log)
        )
        write_program(self.bin / "python3", program)

    def start(self, script: str, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.root / "launch" / script, *arguments],
            env={"PATH": str(self.bin), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(script, *arguments, **variables)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def logged(self) -> list[str]:
        """Return what was called since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


def write_program(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("script", ["check.sh", "test.sh"])
@pytest.mark.parametrize(
    ("patch", "message", "advice"),
    [
        (None, "python3 is not here", "apt install python3 python3-venv"),
        (
            "sys.version_info = (3, 9, 2)",
            "python3 is Python 3.9.2, and Python 3.11 or newer is needed",
            "PYTHON=python3.12",
        ),
        ("sys.modules['ensurepip'] = None", "python3 cannot make virtual environments", "apt install python3-venv"),
    ],
)
def test_says_what_is_missing_and_how_to_get_it(
    checkout: Checkout, script: str, patch: str | None, message: str, advice: str
) -> None:
    if patch is None:
        (checkout.bin / "python3").unlink()
    else:
        checkout.install_python(patch)

    done = checkout.call(script)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert advice in done.stderr
    assert "Traceback" not in done.stderr
    assert not checkout.venv.exists()


def test_the_interpreter_and_the_place_can_be_named(checkout: Checkout, tmp_path: Path) -> None:
    other = tmp_path / "python3.99"
    (checkout.bin / "python3").rename(other)

    done = checkout.call("test.sh", PYTHON=str(other), DDP_REPRO_VENV=str(tmp_path / "else where"))

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "else where" / "bin" / "python").exists()
    assert not checkout.venv.exists()


def test_the_environment_is_made_once_and_extended_when_needed(checkout: Checkout) -> None:
    assert checkout.call("check.sh").returncode == 0
    assert checkout.logged()[:2] == ["venv", "pip a checkout"]
    checkout.call("check.sh")
    assert [line for line in checkout.logged() if line.startswith(("venv", "pip"))] == []
    checkout.call("test.sh")
    assert checkout.logged() == ["pip a checkout[dev]", f"[{PYTEST}]"]
    checkout.call("check.sh")
    checkout.call("test.sh", "-k", "a b")
    assert [line for line in checkout.logged() if "ddp_repro" not in line] == [f"[{PYTEST}, '-k', 'a b']"]
    checkout.call("test.sh", INTEGRATIONS="1")
    assert checkout.logged() == ["pip a checkout[dev,integrations]", f"[{PYTEST}]"]
    checkout.call("test.sh")
    assert checkout.logged() == [f"[{PYTEST}]"]
    (checkout.root / "pyproject.toml").write_text("changed")
    checkout.call("check.sh")
    assert checkout.logged()[0] == "pip a checkout[dev,integrations]"


@pytest.mark.parametrize("file", ["constraints.txt", "pyproject.toml"])
def test_a_changed_requirement_is_installed(checkout: Checkout, file: str) -> None:
    checkout.call("test.sh")
    checkout.logged()
    (checkout.root / file).write_text("changed")

    checkout.call("check.sh")

    assert checkout.logged()[0] == "pip a checkout[dev]"


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.call("test.sh")
    checkout.logged()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))

    assert checkout.call("test.sh").returncode == 0
    assert checkout.logged()[:2] == ["venv", "pip moved[dev]"]


def test_an_installation_that_failed_does_not_poison_the_next(checkout: Checkout) -> None:
    checkout.pip_fails.touch()
    done = checkout.call("check.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "noise of pip" in done.stderr
    assert "the next call starts afresh" in done.stderr
    checkout.logged()
    (checkout.venv / "half-made").touch()
    checkout.pip_fails.unlink()

    assert checkout.call("check.sh").returncode == 0
    assert checkout.logged()[:2] == ["venv", "pip a checkout"]
    assert not (checkout.venv / "half-made").exists()


def test_an_environment_of_someone_else_is_left_alone(checkout: Checkout) -> None:
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / "bin" / "python").touch()

    done = checkout.call("test.sh")

    assert done.returncode == 2
    assert "was not made by these scripts" in done.stderr
    assert "DDP_REPRO_VENV=" in done.stderr
    assert checkout.logged() == []


def test_two_at_once_make_one_environment(checkout: Checkout) -> None:
    both = [checkout.start("test.sh"), checkout.start("test.sh")]
    for process in both:
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err

    assert sorted(checkout.logged()) == [f"[{PYTEST}]", f"[{PYTEST}]", "pip a checkout[dev]", "venv"]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_check_exits_with_the_code_of_the_run(checkout: Checkout, code: int) -> None:
    checkout.run.write_text(
        f"if sys.argv[1] == '-c': sys.exit()\nprint('report')\nprint('more', file=sys.stderr)\nsys.exit({code})"
    )

    done = checkout.call("check.sh", "nproc=4", "workload=a b")

    assert (done.returncode, done.stdout) == (code, "report\n")
    assert done.stderr.endswith("more\n")
    assert checkout.logged()[-1] == "['-m', 'ddp_repro.check', 'nproc=4', 'workload=a b']"


def test_a_run_that_cannot_begin_is_no_divergence(checkout: Checkout) -> None:
    checkout.run.write_text("sys.exit(1 if sys.argv[1] == '-c' else 'not reached')")
    done = checkout.call("check.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be imported" in done.stderr


def test_the_script_becomes_the_run_so_that_no_signal_misses_it(checkout: Checkout) -> None:
    checkout.run.write_text(
        "import time\nif sys.argv[1] == '-c': sys.exit()\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    process = checkout.start("check.sh")
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.kill()
    process.communicate(timeout=20)


def test_ci_runs_every_step_in_an_environment_of_its_own(checkout: Checkout, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    done = checkout.call("../.ci/run", FAILING="0", TMPDIR=str(scratch))

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("All steps passed.\n")
    called = [line for line in done.stdout.splitlines() if line.startswith("called")]
    patterns = ("launch/*.sh", "slurm/*.sh", "slurm/*.sbatch")
    scripts = [str(file.relative_to(ROOT)) for pattern in patterns for file in sorted(ROOT.glob(pattern))]
    assert called == [
        "called ruff check .",
        "called ruff format --check .",
        "called mypy",
        "called lint-imports",
        f"called shellcheck -x .ci/run {' '.join(scripts)}",
    ]
    assert checkout.logged() == ["venv", "pip a checkout[dev,integrations]", f"[{PYTEST}]"]
    assert list(scratch.iterdir()) == []
    assert not checkout.venv.exists()


def test_ci_names_what_failed_and_goes_on(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run.write_text("sys.exit(1)")

    done = checkout.call("../.ci/run", FAILING="1", TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert done.stderr.endswith("FAILED: tests format\n")
    assert "called shellcheck" in done.stdout


def test_ci_stops_without_an_environment(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.bin / "python3").unlink()

    done = checkout.call("../.ci/run", FAILING="0", TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert "python3 is not here" in done.stderr
    assert done.stderr.endswith("FAILED: the environment could not be set up\n")


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "do not say which host this is"),
        ({"NNODES": "2"}, "do not say which host this is"),
        ({"NNODES": "2", "NODE_RANK": "2", "HEAD": "h"}, "do not say which host this is"),
        ({"NNODES": "two", "NODE_RANK": "0", "HEAD": "h"}, "do not say which host this is"),
        ({"NNODES": "2", "NODE_RANK": "1"}, "HEAD must name the host of NODE_RANK=0"),
    ],
)
def test_a_host_must_know_its_place(checkout: Checkout, variables: dict[str, str], told: str) -> None:
    done = checkout.call("check_nodes.sh", "nproc=4", **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert checkout.logged() == []


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_host_is_told_its_place_as_torchrun_would(checkout: Checkout, code: int) -> None:
    names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    checkout.run.write_text(
        f"if sys.argv[1] == '-c': sys.exit()\nprint(*(os.environ.get(name) for name in {names!r}))\nsys.exit({code})"
    )
    done = checkout.call("check_nodes.sh", "nproc=4", NNODES="3", NODE_RANK="2", HEAD="h0", PORT="7")
    assert (done.returncode, done.stdout) == (code, "2 3 2 3 1 h0 7\n")
    alone = checkout.call("check_nodes.sh", "nproc=4", NNODES="1", NODE_RANK="0")
    assert (alone.returncode, alone.stdout) == (code, "None None None None None None None\n")


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_under_a_batch_script_a_divergence_ends_no_other_host(
    checkout: Checkout, tmp_path: Path, code: int, shown: int
) -> None:
    checkout.run.write_text(f"sys.exit(0 if sys.argv[1] == '-c' else {code})")
    ended = {node: tmp_path / f"ended-{node}" for node in "01"}
    for node, file in ended.items():
        place = {"NNODES": "2", "NODE_RANK": node, "HEAD": "h0"}
        done = checkout.call("check_nodes.sh", DDP_REPRO_ENDED=str(file), **place)
        assert done.returncode == shown
    assert ended["0"].read_text() == f"{code}\n"
    assert not ended["1"].exists()


SBATCH = """#!{python}
import sys
open({log!r}, "a").write("sbatch " + repr([word.rpartition("/")[2] for word in sys.argv[1:]]) + "\\n")
if {refuses!r} in " ".join(sys.argv): sys.exit("no such partition")
print("7;cluster")
"""


def install_sbatch(checkout: Checkout, refuses: str) -> None:
    program = SBATCH.format(python=sys.executable, log=str(checkout.log), refuses=refuses)
    write_program(checkout.bin / "sbatch", program)


def test_a_night_is_an_array_and_its_summary(checkout: Checkout, tmp_path: Path) -> None:
    install_sbatch(checkout, refuses="nothing")
    words = ("workload=digits", "workload=text seed=1", "--", "nproc=4", f"output.root={tmp_path}/my runs")
    done = checkout.call("../slurm/nightly.sh", *words, NIGHTLY_SBATCH="--partition=gpu --mem=4G")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "my runs").iterdir()
    assert done.stdout == f"job 7: 2 checks; job 7: their summary, in {folder}\n"
    own = ["workload=digits", "workload=text seed=1"]
    options = ["--parsable", "--array=0-1", "--partition=gpu", "--mem=4G"]
    array = [*options, "nightly.sbatch", folder.name, "2", *own, "nproc=4", "my runs"]
    assert [line for line in checkout.logged() if line.startswith("sbatch")] == [
        f"sbatch {array!r}",
        f"sbatch {['--parsable', '--dependency=afterany:7', 'summary.sbatch', folder.name, *own]!r}",
    ]


@pytest.mark.parametrize(
    ("words", "refuses", "told"),
    [
        ((), "nothing", "No workload was named"),
        (("--", "nproc=4"), "nothing", "No workload was named"),
        (("seed=1",), "--array", "sbatch did not take the checks"),
        (("seed=1",), "--dependency", "took the checks as job 7, and not their summary"),
        (("seed=1",), None, "sbatch is not here"),
    ],
)
def test_a_night_that_cannot_be_submitted(
    checkout: Checkout, tmp_path: Path, words: tuple[str, ...], refuses: str | None, told: str
) -> None:
    if refuses is not None:
        install_sbatch(checkout, refuses)
    done = checkout.call("../slurm/nightly.sh", *words, *(() if "--" in words else ("--", f"output.root={tmp_path}/r")))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
