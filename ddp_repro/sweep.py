"""Several runs of one command, one for each combination that ``-m`` names: each in a folder of its own, and a table."""

import dataclasses
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.report.summary import Row, not_judged_row, print_summary, read_row, worst, write_summary
from ddp_repro.report.terminal import print_error, print_heading
from ddp_repro.run.driver import Interrupted, Invocation, was_interrupted
from ddp_repro.run.place import place_sweep
from ddp_repro.trace.layout import RunFolder, SummaryFiles

_NOT_RUN: Final = "not run: the sweep was interrupted before it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One combination: its overrides, in full, the configuration that they come to, and what composes it with more."""

    overrides: tuple[str, ...]
    settings: Any
    compose: Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The jobs of a command, and the folder that holds theirs."""

    command: str
    typed: tuple[str, ...]
    jobs: Sequence[Job]
    files: SummaryFiles

    @property
    def text(self) -> str:
        """Return the command line that makes the sweep again."""
        return Invocation(command=self.command, overrides=self.typed).text

    def folder(self, number: int) -> Path:
        """Return the run folder of a job."""
        return Path(self.jobs[number].settings.output.dir)


def placed(command: str, typed: Sequence[str], jobs: Sequence[Job]) -> Sweep:
    """Return the sweep with a folder for it, and in that one for each job; jobs that name their own keep it."""
    outputs = [job.settings.output for job in jobs]
    named = [output.dir for output in outputs]
    own = len(jobs) > 1 and None not in named and len(set(named)) == len(jobs)
    files = place_sweep(dataclasses.replace(outputs[0], dir=None) if own else outputs[0])
    for number, output in enumerate(outputs):
        output.dir = output.dir if own else str(files.run(number).path)
    return Sweep(command=command, typed=tuple(typed), jobs=jobs, files=files)


def run_here(sweep: Sweep, run: Callable[[Any, Invocation], ExitCode]) -> ExitCode:
    """Run the jobs one after the other, tell of all in a table, and return the worst code.

    A job that cannot run is NOT_JUDGED, and the next one follows; an interruption ends the sweep.
    """
    rows: list[Row] = []
    for number, job in enumerate(sweep.jobs):
        if was_interrupted():
            rows.append(not_judged(sweep, number, _NOT_RUN))
            continue
        try:
            print_heading(f"run {number + 1} of {len(sweep.jobs)}: {' '.join(job.overrides)}")
            rows.append(_run_one(sweep, number, run))
        except Interrupted as stop:
            rows.append(not_judged(sweep, number, f"interrupted by {stop.signal_name}"))
    return tell(sweep, rows)


def _run_one(sweep: Sweep, number: int, run: Callable[[Any, Invocation], ExitCode]) -> Row:
    job = sweep.jobs[number]
    try:
        code = run(job.settings, Invocation(command=sweep.command, overrides=job.overrides, compose=job.compose))
    except ReproError as error:
        print_error(error)
        return not_judged(sweep, number, str(error))
    except Exception as error:  # noqa: BLE001  a crash of one job is told, and must not cost the others
        traceback.print_exc()
        return not_judged(sweep, number, f"{type(error).__name__}: {error}")
    return row_of(sweep, number, code)


def row_of(sweep: Sweep, number: int, code: int) -> Row:
    """Return the row of a job that ended with ``code``: what was only recorded has no verdict."""
    folder, overrides = sweep.folder(number), sweep.jobs[number].overrides
    if RunFolder(folder).verdict.is_file():
        row = read_row(folder, overrides)
        return (
            row
            if row.code == code
            else not_judged(sweep, number, f"ended with code {code}, and verdict.json says else")
        )
    if code == ExitCode.REPRODUCIBLE:
        return Row(overrides=overrides, verdict=None, code=ExitCode.REPRODUCIBLE, first="", folder=str(folder))
    return not_judged(sweep, number, f"ended with code {code} and wrote no verdict.json")


def not_judged(sweep: Sweep, number: int, why: str) -> Row:
    """Return the row of a job of which nothing is known but why."""
    return not_judged_row(sweep.folder(number), sweep.jobs[number].overrides, why)


def tell(sweep: Sweep, rows: Sequence[Row]) -> ExitCode:
    """Write and print the table, and return the worst code."""
    write_summary(sweep.files, rows, sweep.text)
    print_summary(rows, sweep.files)
    return worst(rows)
