"""Two launches as they are compared: without what only says that the one was to differ from the other."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from ddp_repro.judge.finals import common_ends
from ddp_repro.judge.forwards import common_forwards
from ddp_repro.judge.leftout import Marked, Reason, marked
from ddp_repro.judge.loaders import leave_out_evaluation, leave_out_workers
from ddp_repro.judge.rows import LAYOUT, Index, Mask, unified
from ddp_repro.judge.unused import leave_out_unused
from ddp_repro.judge.wording import counted
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_IMPLEMENTATION: Final = re.compile(r"(?:.*\.)?group\d+\.(foreach|fused|capturable|differentiable)", re.DOTALL)

LeaveOut = Callable[[Marked, Marked], None]
LeftOut = Counter[Reason]
"""How many rows of both launches were left out, for which reason."""


Pair = tuple[Launch, Launch]


def as_twins(a: Launch, b: Launch, *, whole: Pair | None = None) -> tuple[Launch, Launch, LeftOut]:
    """Return two variants without what may be on one side only, and how much that was.

    With ``whole``, ``a`` and ``b`` are the beginnings of those two launches. Never left out are losses, gradients,
    parameters, the optimizer's state and settings that are numbers, buffers after a step, the batches of training
    passes, and the generators' states seen at them.
    """
    one, other, left_out = _without(a, b, _leave_out_of_twins, whole)
    one, other, rows = common_ends(one, other, has_more_forwards=left_out[Reason.FORWARD] > 0)
    left_out[Reason.END] += rows
    return one, other, left_out


def as_same(a: Launch, b: Launch, *, whole: Pair | None = None) -> tuple[Launch, Launch, LeftOut]:
    """Return two launches of the same thing without the states of generators that nothing drew from, and operators."""
    return _without(a, b, leave_out_unused, whole)


def with_other_workers(a: Launch, b: Launch, *, whole: Pair | None = None) -> tuple[Launch, Launch, LeftOut]:
    """Return two launches of the same thing, without what exists once a worker where their number differs."""
    return _without(a, b, _leave_out_workers, whole)


def in_words(left_out: LeftOut) -> list[str]:
    """Return "12 rows of evaluation …" for each reason."""
    return [f"{counted(left_out[reason], 'row')} {reason.value}" for reason in Reason if left_out[reason]]


def _without(a: Launch, b: Launch, leave_out: LeaveOut, whole: Pair | None) -> tuple[Launch, Launch, LeftOut]:
    whole_a, whole_b = whole or (a, b)
    traces_a, traces_b = dict(a.traces), dict(b.traces)
    left_out: LeftOut = Counter()
    for rank in a.traces.keys() & b.traces.keys():
        one, other = marked(a.traces[rank], whole_a.traces[rank]), marked(b.traces[rank], whole_b.traces[rank])
        _leave_out_operators(one, other)
        leave_out(one, other)
        traces_a[rank], traces_b[rank] = one.kept(), other.kept()
        left_out += one.counts + other.counts
    return replace(a, traces=traces_a), replace(b, traces=traces_b), left_out


def _leave_out_workers(a: Marked, b: Marked) -> None:
    leave_out_workers(a, b)
    leave_out_unused(a, b)


def _leave_out_of_twins(a: Marked, b: Marked) -> None:
    _leave_out_capture(a, b)
    leave_out_evaluation(a, b)
    leave_out_unused(a, b)
    _leave_out_forwards(a, b)
    _leave_out_settings(a, b)


def _leave_out_operators(a: Marked, b: Marked) -> None:
    """Leave out what operators read and left: memory that nothing was written to yet may hold anything there."""
    for side in (a, b):
        side.leave_out(_of_phases(side.trace, ("op", "collective")), Reason.OPERATORS)


def _leave_out_capture(a: Marked, b: Marked) -> None:
    """Leave out modules where the levels of capture differ, or the steps that were observed so."""
    rows = [_of_phases(side.trace, ("forward",)) for side in (a, b)]
    steps = [set(side.trace.step[own].tolist()) for side, own in zip((a, b), rows, strict=True)]
    if a.trace.meta.capture == b.trace.meta.capture and steps[0] == steps[1]:
        return
    for side, own in zip((a, b), rows, strict=True):
        side.leave_out(own, Reason.CAPTURE)


def _of_phases(trace: Trace, phases: tuple[str, ...]) -> Mask:
    found: Mask = np.isin(trace.phase, [code for code, phase in enumerate(trace.phases) if phase in phases])
    return found


def _leave_out_forwards(a: Marked, b: Marked) -> None:
    labels, columns = unified([a.trace, b.trace])
    for side, rows in zip((a, b), common_forwards(labels, columns), strict=True):
        side.leave_out(rows, Reason.FORWARD)


def _leave_out_settings(a: Marked, b: Marked) -> None:
    """Leave out each sort of row that tells a setting, where it tells another one."""
    for phase, setting in (("grad_reduced", LAYOUT), ("optimizer", _IMPLEMENTATION)):
        rows = [_telling(side.trace, phase, setting) for side in (a, b)]
        if _told(a.trace, rows[0]) != _told(b.trace, rows[1]):
            a.leave_out(rows[0], Reason.SETTING)
            b.leave_out(rows[1], Reason.SETTING)


def _telling(trace: Trace, phase: str, setting: re.Pattern[str]) -> Index:
    codes = [code for code, name in enumerate(trace.names) if setting.fullmatch(name)]
    phases = [code for code, label in enumerate(trace.phases) if label == phase]
    return np.flatnonzero(np.isin(trace.phase, phases) & np.isin(trace.name, codes))


def _told(trace: Trace, rows: Index) -> list[tuple[int, str, bytes]]:
    return [(int(trace.step[row]), trace.names[trace.name[row]], trace.digest[row].tobytes()) for row in rows]
