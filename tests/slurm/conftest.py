"""A Slurm of two nodes for the tests of this folder, and the environment that the scripts would make."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import environment
from tests.slurm.cluster import Cluster, missing

ROOT = Path(__file__).parents[2]

# Whatever a job takes this for, it installs nothing into the interpreter of the tests.
BORROWED = """#!/bin/sh
[ "$1 $2" != "-m pip" ] || exit 1
exec {python} "$@"
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes: ``n1`` has all of this machine's processors, ``n2`` the first one alone."""
    if why := missing():
        pytest.skip(why)
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    made = Cluster(cpus=[processors, processors.partition(",")[0]])
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def job_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of jobs: the scripts find this interpreter's installation as one that they made."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(BORROWED.format(python=shlex.quote(sys.executable)))
    python.chmod(0o755)
    (venv / ".made-by-ddp-repro").touch()
    environ = environment({"DDP_REPRO_VENV": str(venv), "PYTHON": sys.executable})
    environ["PYTHONPATH"] = f"{environ['PYTHONPATH']}{os.pathsep}{ROOT}"
    stamp = subprocess.run(
        ["bash", "-c", f"source {shlex.quote(str(ROOT / 'launch/environment.sh'))}; fingerprint {sys.executable}"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (venv / ".installed").write_text(f"{stamp} dev\n")
    return environ
