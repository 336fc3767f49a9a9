"""Answers `report`: what the verdict on a run looks like. Makes ``report.html`` again from the run's files."""

import sys
from pathlib import Path

from ddp_repro.cli import Command, run_command
from ddp_repro.config import RetellConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.overrides import quoted
from ddp_repro.report.html.opening import open_page
from ddp_repro.report.pages import write_again
from ddp_repro.report.terminal import print_written
from ddp_repro.run.driver import Invocation
from ddp_repro.trace.layout import RunFolder

USAGE = "Name the folder of a run: python -m ddp_repro.report runs/0"


def retell(config: RetellConfig, _invocation: Invocation) -> ExitCode:
    """Write the page of a run; 0 where it is written, whatever the verdict is."""
    if not config.run:
        raise ReproError("no run was named.", hint=USAGE)
    if not config.report.html:
        raise ReproError("report.html=false would leave nothing to do.", hint="Leave report.html out.")
    run = RunFolder(Path(config.run))
    if not run.path.is_dir():
        raise ReproError(f"{run.path} is not a folder.", hint=USAGE)
    if not run.verdict.is_file():
        raise ReproError(
            f"{run.path} holds no verdict.json.",
            hint="Name a folder that check, resume, compare, bisect, survey, spread or cost wrote.",
        )
    print_written(write_again(run))
    if config.report.open:
        open_page(run.report)
    return ExitCode.REPRODUCIBLE


def main() -> None:
    """Run as ``python -m ddp_repro.report``; a first argument without a key is the run."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    if first and not first.startswith("-") and ("=" not in first or Path(first).is_dir()):
        sys.argv[1] = f"run={quoted(first)}"
    run_command(Command(name="report", schema=RetellConfig, run=retell))
