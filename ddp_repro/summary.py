"""Answers `summary`: how did these runs end. One table of their verdicts; needs neither torch nor a GPU."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("summary")

import os
import sys
from pathlib import Path

from ddp_repro.cli import Command, run_command
from ddp_repro.config import SummaryConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.overrides import quoted
from ddp_repro.report.summary import print_summary, read_row, worst, write_summary
from ddp_repro.run.driver import Invocation
from ddp_repro.trace.layout import SummaryFiles

NAME = "name="
USAGE = "Name their folders: python -m ddp_repro.summary runs/0 runs/1"


def summary(config: SummaryConfig, invocation: Invocation) -> ExitCode:
    """Tell of the runs in one table, write it, and return the worst code; a run without a verdict is NOT_JUDGED."""
    if not config.runs:
        raise ReproError("no run was named.", hint=USAGE)
    folders = [Path(run) for run in config.runs]
    files = SummaryFiles(Path(config.into) if config.into else _around(folders))
    if not files.path.is_dir():
        raise ReproError(f"{files.path} is not a folder.", hint="Name the folder for the table: into=runs")
    if config.names and len(config.names) != len(folders):
        raise ReproError(
            f"{len(config.names)} names were given for {len(folders)} runs.", hint="Give each run a name=, or none."
        )
    if config.names:
        rows = [read_row(folder, [name]) for folder, name in zip(folders, config.names, strict=True)]
    else:
        rows = [read_row(folder) for folder in folders]
    write_summary(files, rows, invocation.text)
    print_summary(rows, files)
    return worst(rows)


def _around(folders: list[Path]) -> Path:
    """Return the nearest folder that holds all of these."""
    return Path(os.path.relpath(os.path.commonpath([folder.resolve().parent for folder in folders])))


def main() -> None:
    """Run as ``python -m ddp_repro.summary``; leading arguments without a key are runs, ``name=…`` what they are."""
    runs = []
    while len(sys.argv) > 1 and _is_run(sys.argv[1]):
        runs.append(sys.argv.pop(1))
    names = [argument.removeprefix(NAME) for argument in sys.argv[1:] if argument.startswith(NAME)]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if not argument.startswith(NAME)]
    sys.argv[1:1] = [*_listed("runs", runs), *_listed("names", names)]
    run_command(Command(name="summary", schema=SummaryConfig, run=summary))


def _listed(key: str, texts: list[str]) -> list[str]:
    return [f"{key}=[{','.join(map(quoted, texts))}]"] if texts else []


def _is_run(argument: str) -> bool:
    return not argument.startswith("-") and ("=" not in argument or Path(argument).is_dir())
