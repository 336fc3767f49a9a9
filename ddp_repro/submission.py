"""The runs of a sweep that another launcher of Hydra's starts, such as jobs of Slurm: what each does there."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.overrides import quoted
from ddp_repro.report.summary import Row
from ddp_repro.report.terminal import print_error
from ddp_repro.run.driver import Interrupted
from ddp_repro.sweep import Sweep, not_judged, row_of, tell
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.layout import SummaryFiles

SCHEMA_VERSION: Final = 1
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """What a job does: run the command in a process of its own, as a person would, and write how that ended.

    ``arguments`` holds each job's own. Paths are absolute and lie on a disk that both sides share.
    """

    command: str
    arguments: Sequence[Sequence[str]]
    files: SummaryFiles

    def run(self, number: int) -> int:
        """Run job ``number`` (from 0) and return its exit code; signals that end the job end it in order."""
        words = [sys.executable, "-m", f"ddp_repro.{self.command}", *self.arguments[number]]
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # inherited: submitit's warning would end the run unjudged
        with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:

            def end(_signum: int, _frame: FrameType | None) -> None:
                process.terminate()

            for signum in _ENDING:
                signal.signal(signum, end)
            code = process.wait()
        write_json(
            self.files.outcome(number), {"schema": SCHEMA_VERSION, "exit_code": code, "host": socket.gethostname()}
        )
        return code


def run_there(sweep: Sweep, submit: Callable[[There], None]) -> ExitCode:
    """Have all jobs submitted, wait until all ended, tell of them in a table, and return the worst code.

    A job of which nothing came back is NOT_JUDGED.
    """
    absolute = SummaryFiles(sweep.files.path.resolve())
    folders = [os.fspath(sweep.folder(number).resolve()) for number in range(len(sweep.jobs))]
    arguments = [
        (*job.overrides, f"output.dir={quoted(folder)}") for job, folder in zip(sweep.jobs, folders, strict=True)
    ]
    for number in range(len(sweep.jobs)):
        absolute.outcome(number).unlink(missing_ok=True)
    try:
        submit(There(command=sweep.command, arguments=arguments, files=absolute))
    except ReproError as error:
        print_error(error)
    except Interrupted as stop:
        told = f"interrupted by {stop.signal_name}: the runs that were submitted go on."
        print_error(ReproError(told, hint="Where they are jobs of Slurm, scancel ends them."))
    return tell(sweep, [_row(sweep, number) for number in range(len(sweep.jobs))])


def _row(sweep: Sweep, number: int) -> Row:
    file = sweep.files.outcome(number)
    try:
        code = read_json(file).get("exit_code")
    except ReproError:
        return not_judged(sweep, number, f"its job did not end: there is no {file}")
    return row_of(sweep, number, code if isinstance(code, int) else ExitCode.NOT_JUDGED)
