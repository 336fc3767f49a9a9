"""Steps and ranks laid into as many columns and rows as a screen has; of each, the first difference is kept."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from ddp_repro.report.html.seen import Ints

COLUMNS: Final = 480
ROWS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Numbers ``first`` to ``last``, ``width`` of them to a column; step -1 has a column of its own."""

    first: int
    last: int
    width: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the first and the last number of each column."""
        before = [(-1, -1)] if self.first < 0 else []
        begins = range(max(self.first, 0), self.last + 1, self.width)
        return before + [(begin, min(begin + self.width - 1, self.last)) for begin in begins]

    @property
    def starts(self) -> Ints:
        """Return where each column begins in an array whose first element stands for step -1."""
        return np.array([begin + 1 for begin, _ in self.spans], np.int64)


def axis(first: int, last: int, at_most: int) -> Axis:
    """Return the axis over all numbers from ``first`` to ``last`` in ``at_most`` columns (and one for step -1)."""
    count = last - max(first, 0) + 1
    return Axis(first=first, last=last, width=max(1, -(-count // at_most)))
