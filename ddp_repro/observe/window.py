"""In which steps modules and operators are observed, what is kept of them, and how much room that may take."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddp_repro.observe.recorder import Row
from ddp_repro.observe.survey import SurveyPlan
from ddp_repro.trace.schema import DIGEST_BYTES, FULL

_logger: Final = logging.getLogger(__name__)
MIB: Final = 1 << 20
ROW_BYTES: Final = 32  # on disk, measured over long traces: 25 to 29


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Steps ``first`` to ``last`` (optimizer steps done before them; ``None``: to the end), and the bounds there.

    ``limit_bytes`` bounds the rows of modules and operators on disk, ``keep_bytes`` the tensors of operators that are
    kept in memory until a step ends. ``keep`` names what they are kept of (``forward``, ``backward``, ``optimizer``),
    ``keep_at`` gives the file for those of a step. ``on_size`` is told, after the first step, how many bytes it takes.
    With ``survey`` operators are not recorded, but run again.
    """

    first: int = 0
    last: int | None = None
    limit_bytes: int = 1024 * MIB
    keep: str | None = None
    keep_bytes: int = 256 * MIB
    keep_at: Callable[[int], Path] | None = None
    on_size: Callable[[int], None] | None = None
    survey: SurveyPlan | None = None

    def covers(self, step: int) -> bool:
        """Tell whether a step is observed in this detail."""
        return self.first <= step and (self.last is None or step <= self.last)

    @property
    def steps(self) -> int | None:
        """How many steps it covers; ``None`` where it has no end."""
        return None if self.last is None else self.last - self.first + 1


class Room:
    """How much of a window's room is left: says beforehand what it will come to, and ends observing at its limit."""

    def __init__(self, window: Window, tell: Callable[[str], None] = _logger.info) -> None:
        self.window = window
        self._tell = tell
        self._rows = 0
        self._told = False
        self.is_full = False

    def is_open(self, step: int) -> bool:
        """Tell whether there is room, and a step is one to be observed."""
        return not self.is_full and self.window.covers(step)

    def take(self, rows: int) -> bool:
        """Count rows; tell whether the limit was passed just now."""
        self._rows += rows
        if self.is_full or self._rows * ROW_BYTES <= self.window.limit_bytes:
            return False
        self.is_full = True
        self._tell(
            f"capture.limit_mb={self.window.limit_bytes // MIB} is used up after {self._rows:,} rows of modules and "
            "operators: no more of them are observed; narrow capture.steps, or raise capture.limit_mb"
        )
        return True

    @staticmethod
    def full_row(step: int) -> Row:
        """Return the row that says that the limit was passed in a step."""
        return step, "op", FULL, "text", bytes(DIGEST_BYTES), None

    def end_step(self) -> None:
        """Say after the first step what all of them will come to."""
        if self._told or not self._rows:
            return
        self._told = True
        each, steps = self._rows * ROW_BYTES / MIB, self.window.steps
        whole = f"{each * steps:,.1f} MiB for the {steps:,} steps of capture.steps" if steps else "without an end"
        self._tell(f"modules and operators: {self._rows:,} rows, about {each:,.1f} MiB a step and rank; {whole}")
        if self.window.on_size is not None:
            self.window.on_size(self._rows * ROW_BYTES)
