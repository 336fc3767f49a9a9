"""Marks of rows that two traces are compared without, and why."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from ddp_repro.judge.ignored import rows_kept
from ddp_repro.judge.rows import Index, Mask
from ddp_repro.trace.reader import Trace


class Reason(StrEnum):
    """Why rows say nothing of the result: they belong to what was meant to differ."""

    EVALUATION = "of evaluation passes that not both made alike"
    FORWARD = "at the entry of forwards that only one made"
    WORKERS = "of the workers themselves, whose number differs"
    UNUSED = "of generators that nothing drew from"
    END = "of how ranks ended (validation that only one made, buffers that its forwards broadcast)"
    CAPTURE = "of modules, which not both were observed in"
    OPERATORS = "of operators, which tell where a difference comes from and are none in themselves"
    SETTING = "that tell a setting (bucket layout, implementation of the optimizer)"


@dataclass(slots=True, kw_only=True, eq=False)
class Marked:
    """One of two traces, with the rows that it is compared without (``left``, bool[n]) and how many for which reason.

    ``names`` and ``name`` are the trace's own, but for loaders that the other trace knows by another number. ``whole``
    is the trace with what came after the steps that are compared.
    """

    trace: Trace
    whole: Trace
    left: Mask
    name: Index
    names: list[str]
    counts: Counter[Reason] = field(default_factory=Counter)

    def leave_out(self, rows: Index | Mask, reason: Reason) -> None:
        """Mark rows; those that are marked already are not counted again."""
        chosen = np.zeros(len(self.trace), np.bool_)
        chosen[rows] = True
        chosen &= ~self.left
        self.counts[reason] += int(np.count_nonzero(chosen))
        self.left |= chosen

    def call(self, rows: Index, old: str, new: str) -> None:
        """Have the names of ``rows`` that begin with ``old`` begin with ``new``."""
        for code in np.unique(self.name[rows]):
            if not self.names[code].startswith(old):
                continue
            name = new + self.names[code].removeprefix(old)
            if name not in self.names:
                self.names.append(name)
            here = rows[self.name[rows] == code]
            self.name[here] = self.names.index(name)

    def kept(self) -> Trace:
        """Return the trace without the marked rows."""
        if not self.left.any() and self.names == self.trace.names:
            return self.trace
        return rows_kept(replace(self.trace, name=self.name.astype(np.int32), names=self.names), ~self.left)


def marked(trace: Trace, whole: Trace | None = None) -> Marked:
    """Return a trace of which nothing is left out yet; ``whole`` is given where it is compared up to a step only."""
    return Marked(
        trace=trace,
        whole=trace if whole is None else whole,
        left=np.zeros(len(trace), np.bool_),
        name=trace.name.astype(np.int64),
        names=list(trace.names),
    )
