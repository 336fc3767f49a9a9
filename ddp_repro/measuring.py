"""The first part of every measuring command: make the launches, and have each one read as it ends."""

from contextlib import suppress
from typing import Protocol

from ddp_repro.errors import ReproError
from ddp_repro.report.progress import Progress
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.trace.launch import read_launch_record


class Reading(Protocol):
    """Reads what launches are made for; they are numbered from 0, in the order in which they are made."""

    def begin(self, launch: int) -> None:
        """Take note of what is there before the launch."""

    def read(self, launch: int) -> None:
        """Read what a launch that finished gave; raise ReproError where it is not there."""

    def called(self, launch: int) -> str:
        """Return what tells the launch from the others."""


def make_read(plan: Plan, invocation: Invocation, reading: Reading) -> list[str]:
    """Make the launches; return why nothing can be concluded, where one of them failed or could not be read.

    Raises ReproError for what is wrong before the first one was started.
    """
    watch = _Watch(reading)
    try:
        with suppress(Interrupted), Progress(enabled=plan.config.output.progress) as progress:
            watch.progress = progress
            make_launches(plan, invocation, watch)
    except ReproError as error:
        if not watch.started:
            raise
        return [" ".join(part for part in (str(error), error.hint) if part)]
    if watch.read == plan.launches:
        return []
    told = "was not made"
    with suppress(ReproError):
        record = read_launch_record(plan.folder.launch(watch.read).record)
        told = f"{record.outcome}: {record.reason or 'no reason is known'}"
    return [f"launch {watch.read} ({reading.called(watch.read)}) {told}"]


class _Watch:
    """Shows how far the launches are, and counts those that were ``read``."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.progress: Progress | None = None
        self.started = False
        self.read = 0

    def launch_started(self, launch: int, of: int) -> None:
        """Take note that launches have begun."""
        self.started = True
        self._reading.begin(launch)
        if self.progress is not None:
            self.progress.launch_started(launch, of)

    def note(self, text: str) -> None:
        """Say ``text`` now."""
        if self.progress is not None:
            self.progress.note(text)

    def step(self, launch: int, step: int, total: int | None) -> None:
        """Show that rank 0 completed a step."""
        if self.progress is not None:
            self.progress.step(launch, step, total)

    def launch_finished(self, launch: int, outcome: str) -> None:
        """Have a launch read that finished: a mistake is told after the first one."""
        if self.progress is not None:
            self.progress.launch_finished(launch, outcome)
        if outcome == "finished":
            self._reading.read(launch)
            self.read += 1
