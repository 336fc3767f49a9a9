"""A progress bar over launches and steps on stderr; on a terminal only, else one line a launch."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from ddp_repro.judge.wording import counted


class Progress:
    """Shows how far the launches are; numbers are told from 1, as people count."""

    def __init__(self, *, enabled: bool = True, console: Console | None = None, noun: str = "launch") -> None:
        self._noun = noun
        self._console = console or Console(stderr=True, highlight=False)
        self._enabled = enabled
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._of = 0
        self._steps = 0

    def __enter__(self) -> Self:
        if self._enabled and self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def launch_started(self, launch: int, of: int) -> None:
        """Take note that launch number ``launch`` (from 0) of ``of`` was started."""
        self._of, self._steps = of, 0
        if self._bars is not None:
            self._task = self._bars.add_task(f"{self._noun} {launch + 1} of {of}: starting", total=None)

    def step(self, launch: int, step: int, total: int | None) -> None:
        """Show that rank 0 completed its ``step``-th optimizer step of ``total`` (``None``: unknown)."""
        self._steps = step
        if self._bars is not None and self._task is not None:
            description = f"{self._noun} {launch + 1} of {self._of}: step"
            self._bars.update(self._task, description=description, completed=step, total=total)

    def note(self, text: str) -> None:
        """Say ``text`` now."""
        if self._enabled:
            self._console.print(Text(f"{self._noun}: {text}"), soft_wrap=True)

    def launch_finished(self, launch: int, outcome: str) -> None:
        """Take note that the launch ended, and say so."""
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        if self._enabled:
            told = f"{self._noun} {launch + 1} of {self._of}: {outcome}, {counted(self._steps, 'step')}"
            self._console.print(Text(told), soft_wrap=True)
