"""A trace that still grows, compared with a whole one step by step: what may be the first difference, and where.

By the judge's own comparison, so that it finds whatever that finds. It finds more: rows that the judge leaves out, once
it knows the whole traces. So what is found here is only a suspicion, and has to be confirmed.
"""

from dataclasses import fields, replace
from typing import Final

import numpy as np

from ddp_repro.judge.comparison import EveryDifference, differences_of
from ddp_repro.judge.rows import Labels, Rows, in_phases, unified
from ddp_repro.trace.observations import Trace
from ddp_repro.trace.schema import CLOSING_PHASE

_LEFT_OUT: Final = ("op", "collective", CLOSING_PHASE)
_BEGIN: Final = -2  # before the step of what precedes the first one

_Key = tuple[str, str]


class Growing:
    """The trace of one rank as it grows, against the ``whole`` one of another launch."""

    def __init__(self, whole: Trace) -> None:
        order = np.argsort(whole.step, kind="stable")
        rows = order[~in_phases(whole, _LEFT_OUT)[order]]
        self._whole, self._labels = whole, unified([whole])[0]
        self._rows = unified([whole])[1][0].take(rows)
        self._parts: list[Trace] = []
        self._pending: Rows | None = None
        self._begin = _BEGIN
        self._excused: set[_Key] = set()
        self._differing: dict[_Key, int] = {}

    def grown(self) -> Trace:
        """Return all rows so far; there must be some."""
        self._parts = [Trace.joined(self._parts)]
        return self._parts[0]

    @property
    def reach(self) -> int:
        """The step below which all rows are there."""
        return self._begin

    @property
    def suspected(self) -> int | None:
        """The first step in which something differs that is not excused, ``None`` where nothing does."""
        return min((step for key, step in self._differing.items() if key not in self._excused), default=None)

    def excuse(self) -> None:
        """Suspect no more what has differed so far, by phase and name: it was found to be no difference."""
        self._excused |= self._differing.keys()

    def take(self, added: Trace) -> None:
        """Take rows that follow those so far, with the labels of all; compare the steps that are whole by then."""
        self._parts.append(added)
        if not len(added):
            return
        labels, pending = self._translated(added)
        last = int(added.step.max())
        if self._pending is not None:
            pending = Rows.joined(self._pending, pending)
        complete = pending.step < last
        self._pending = pending.take(~complete)
        if last > self._begin:
            self._compare(labels, pending.take(complete), last)
            self._begin = last

    def _translated(self, added: Trace) -> tuple[Labels, Rows]:
        """Return the rows that count, with the codes of all labels so far."""
        added = _only(added, ~in_phases(added, _LEFT_OUT))
        labels, (_, rows) = unified([_only(self._whole, slice(0, 0)), added])
        return labels, rows

    def _compare(self, labels: Labels, rows: Rows, end: int) -> None:
        begin, stop = np.searchsorted(self._rows.step, [self._begin, end])
        self._note(differences_of(labels, self._rows.take(slice(begin, stop)), rows))

    def _note(self, found: EveryDifference) -> None:
        if not len(found.seen):
            return
        codes = found.seen.phase.astype(np.int64) * len(found.labels.names) + found.seen.name
        kinds, where = np.unique(codes, return_inverse=True)
        steps = np.full(len(kinds), np.iinfo(np.int64).max)
        np.minimum.at(steps, where, found.seen.step)
        for kind, step in zip(kinds.tolist(), steps.tolist(), strict=True):
            phase, name = divmod(kind, len(found.labels.names))
            key = found.labels.phases[phase], found.labels.names[name]
            self._differing[key] = min(step, self._differing.get(key, step))


def _only(trace: Trace, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]] | slice") -> Trace:
    columns = {name: getattr(trace, name)[rows] for name in (*(one.name for one in fields(Rows)), "seq", "valid")}
    return replace(trace, **columns)
