"""A run of a sweep that another launcher starts: what it leaves, and how the end of its job ends it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_repro.trace.layout import RunFolder
from tests.cli.test_endings import await_steps
from tests.command import environment

ENDLESS = ("workload.size=tiny", "train.epochs=100000", "nproc=2", "second_look=false", "output.dir=run")
PROGRAM = """
import sys
from pathlib import Path
from ddp_repro.submission import There
from ddp_repro.trace.layout import SummaryFiles
There(command="check", arguments=[[], sys.argv[1:]], files=SummaryFiles(Path.cwd())).run(1)
"""


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize("signum", [signal.SIGUSR2, signal.SIGTERM])
def test_the_end_of_its_time_ends_it_in_order(tmp_path: Path, signum: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *ENDLESS], cwd=tmp_path, env=environment())
    await_steps(tmp_path, ranks=2)
    process.send_signal(signum)
    process.wait(60)
    assert json.loads((tmp_path / "1.json").read_text())["exit_code"] == 2
    assert json.loads(RunFolder(tmp_path / "run").verdict.read_text())["verdict"] == "NOT_JUDGED"
