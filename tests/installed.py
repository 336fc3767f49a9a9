"""The scripts of launch/ and slurm/ with this interpreter's installation, as if they had made it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.command import environment

ROOT = Path(__file__).parents[1]

# Whatever a script takes this for, it installs nothing into the interpreter of the tests.
BORROWED = """#!/bin/sh
[ "$1 $2" != "-m pip" ] || exit 1
exec {python} "$@"
"""


def installed(venv: Path) -> dict[str, str]:
    """Make ``venv`` what the scripts would make, and return the environment in which they find it."""
    python = venv / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(BORROWED.format(python=shlex.quote(sys.executable)))
    python.chmod(0o755)
    (venv / ".made-by-ddp-repro").touch()
    environ = environment({"DDP_REPRO_VENV": str(venv), "PYTHON": sys.executable})
    environ["PYTHONPATH"] = f"{environ['PYTHONPATH']}{os.pathsep}{ROOT}"
    ask = f"source {shlex.quote(str(ROOT / 'launch/environment.sh'))}; fingerprint {shlex.quote(sys.executable)}"
    stamp = subprocess.run(["bash", "-c", ask], env=environ, capture_output=True, text=True, check=True).stdout.strip()
    (venv / ".installed").write_text(f"{stamp} dev\n")
    return environ
