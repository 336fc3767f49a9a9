"""Traces that grow, against what the judge finds in them as a whole."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_repro.judge.comparison import compare_traces
from ddp_repro.judge.growing import Growing
from ddp_repro.judge.ignored import rows_kept
from ddp_repro.trace.observations import Trace
from tests.unit.synthetic import Row, Rows, Script, ranks, trace_of

ROWS = ranks(Script(world_size=3, workers=2, length=48))[0]
WHOLE = trace_of(ROWS)
STEPS = max(row.step for row in ROWS)


def part(trace: Trace, begin: int, end: int) -> Trace:
    """Return some of a trace as a reader would: with no labels that come later."""
    some = rows_kept(trace, (np.arange(len(trace)) >= begin) & (np.arange(len(trace)) < end))
    known = {
        f"{column}s": getattr(trace, f"{column}s")[: getattr(trace, column)[:end].max(initial=-1) + 1]
        for column in ("phase", "name", "spec")
    }
    return replace(some, **known)


def grown(rows: Rows, ends: list[int]) -> Growing:
    trace, growing, begin = trace_of(rows), Growing(WHOLE), 0
    for end in sorted(ends):
        growing.take(part(trace, begin, end))
        begin = end
    return growing


def as_seen(rows: Rows, ends: list[int]) -> int | None:
    """Return the step of the first difference over the steps that are whole by then, as the judge finds it."""
    trace = part(trace_of(rows), 0, max(ends))
    last = int(trace.step.max(initial=-2))
    found = compare_traces(rows_kept(WHOLE, WHOLE.step < last), rows_kept(trace, trace.step < last))
    return None if found is None else found.step


cuts = st.lists(st.integers(0, len(ROWS)), min_size=1, max_size=8)


@settings(deadline=None)
@given(st.sets(st.integers(0, len(ROWS) - 1), max_size=4), cuts)
def test_a_flip_is_suspected_where_the_judge_finds_it(flips: set[int], ends: list[int]) -> None:
    rows = [replace(row, content="flipped") if at in flips else row for at, row in enumerate(ROWS)]
    assert grown(rows, ends).suspected == as_seen(rows, ends)


@settings(deadline=None)
@given(st.integers(0, len(ROWS) - 1), st.sampled_from(["drop", "twice", "new", "spec"]), cuts)
def test_other_rows_are_suspected_where_the_judge_finds_them(at: int, how: str, ends: list[int]) -> None:
    row = ROWS[at]
    other = {
        "drop": [],
        "twice": [row, row],
        "new": [Row(row.step, row.phase, "nobody", "none", "x"), row],
        "spec": [replace(row, spec="int8[9]")],
    }[how]
    rows = [*ROWS[:at], *other, *ROWS[at + 1 :]]
    ends = [min(end, len(rows)) for end in ends]
    assert grown(rows, ends).suspected == as_seen(rows, ends)


@settings(deadline=None)
@given(cuts)
def test_equal_traces_are_never_suspected_and_all_of_it_is_kept(ends: list[int]) -> None:
    growing = grown(ROWS, [*ends, len(ROWS)])
    assert growing.suspected is None
    assert growing.reach == STEPS
    assert growing.grown().content == WHOLE.content


def test_what_is_excused_is_suspected_no_more_and_other_things_are() -> None:
    rows = [replace(row, content=f"other {row.step}") if row.name == "python" else row for row in ROWS]
    rows = [replace(row, content="odd") if (row.step, row.phase) == (4, "loss") else row for row in rows]
    trace, growing = trace_of(rows), Growing(WHOLE)
    middle = next(at for at, row in enumerate(rows) if row.step == 3)
    growing.take(part(trace, 0, middle))
    assert growing.suspected == 0
    growing.excuse()
    assert growing.suspected is None
    growing.take(part(trace, middle, len(rows)))
    assert growing.suspected == 4


def test_operators_are_no_difference() -> None:
    rows = [replace(row, phase="op") if row.phase == "optimizer" else row for row in ROWS]
    growing = Growing(trace_of(rows))
    growing.take(trace_of([replace(row, content="memory") if row.phase == "op" else row for row in rows]))
    assert growing.suspected is None
