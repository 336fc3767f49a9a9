"""The first operator in which two launches part, from rows alone."""

from dataclasses import replace
from typing import Any

import pytest

from ddp_repro.judge.findings import Distance, Element, Finding
from ddp_repro.judge.looking import in_words, looked, without_return, worth_a_look
from ddp_repro.judge.operators import OperatorDivergence, first_operator
from tests.unit.synthetic import Row, Rows, launch_of, trace_of

SOURCE = "model.py:7"


def call(name: str, reads: str, leaves: str, *, place: str = SOURCE, phase: str = "op") -> Rows:
    return [
        Row(3, phase, f"{name}.in", f"float32[2] at {place}", reads),
        Row(3, phase, f"{name}.out", "float32[2]", leaves),
    ]


def rows(*parts: Rows) -> Rows:
    return [row for part in parts for row in part]


BACKWARD = f"{SOURCE} by AddBackward0"
FIRST = call("a/aten::mm#0", "x", "y")
SECOND = call("b(2)/aten::add.Tensor#0", "y", "z", place=BACKWARD)
LAST = [Row(3, "grad_local", "weight", "float32[2]", "z")]


def parted(a: Rows, b: Rows, **more: Any) -> OperatorDivergence | None:
    return first_operator(trace_of(a), trace_of(b), 3, **more)


def test_equal_operators_part_nowhere() -> None:
    assert parted(rows(FIRST, SECOND), rows(FIRST, SECOND)) is None


def test_names_the_one_whose_inputs_are_equal_and_whose_output_differs() -> None:
    other = rows(FIRST, call("b(2)/aten::add.Tensor#0", "y", "other", place=BACKWARD))
    found = parted(rows(FIRST, SECOND), other)
    assert found is not None
    assert found.evidence == "output"
    assert (found.operator.operator, found.operator.module) == ("aten::add.Tensor", "b(2)")
    assert (found.operator.source, found.operator.node) == (SOURCE, "AddBackward0")
    assert (found.operator.reads, found.operator.leaves) == ("float32[2]", "float32[2]")


def test_one_that_only_hands_a_difference_on_is_not_named() -> None:
    other = rows(call("a/aten::mm#0", "x", "other"), call("b(2)/aten::add.Tensor#0", "other", "third", place=BACKWARD))
    found = parted(rows(FIRST, SECOND), other)
    assert found is not None
    assert (found.evidence, found.operator.call) == ("output", "a/aten::mm#0")


def test_inputs_that_differ_and_do_nothing_are_passed_over() -> None:
    other = rows(
        call("a/aten::mm#0", "uninitialised", "y"), call("b(2)/aten::add.Tensor#0", "y", "other", place=BACKWARD)
    )
    found = parted(rows(FIRST, SECOND), other)
    assert found is not None
    assert (found.evidence, found.operator.module) == ("output", "b(2)")


def test_what_comes_from_outside_is_told_as_such() -> None:
    other = rows(
        call("a/aten::mm#0", "drawn", "other"), call("b(2)/aten::add.Tensor#0", "other", "third", place=BACKWARD)
    )
    found = parted(rows(FIRST, SECOND), other)
    assert found is not None
    assert (found.evidence, found.operator.call) == ("input", "a/aten::mm#0")


def test_one_that_a_launch_does_not_call_is_told_as_such() -> None:
    found = parted(rows(FIRST, SECOND), FIRST)
    assert found is not None
    assert (found.evidence, found.operator.module) == ("path", "b(2)")


def test_a_collective_counts_by_when_it_was_called() -> None:
    reads, leaves = call("c10d::allreduce_#0", "local", "sum", phase="collective")
    later = call("aten::copy_#0", "sum", "copied")
    other = [reads, *call("aten::copy_#0", "other", "copied too"), replace(leaves, content="other")]
    found = parted([reads, *later, leaves], other)
    assert found is not None
    assert (found.evidence, found.operator.operator) == ("output", "c10d::allreduce_")


THIRD = call("aten::add_.Tensor#0", "z", "out", place="train.py:19")


def test_one_call_more_is_named_and_moves_no_other() -> None:
    more = call("aten::add_.Tensor#0", "z", "z'", place="train.py:18")
    later = [replace(row, name=row.name.replace("#0", "#1")) for row in THIRD]
    longer = rows(FIRST, SECOND, more, later, LAST)
    for a, b in ((rows(FIRST, SECOND, THIRD, LAST), longer), (longer, rows(FIRST, SECOND, THIRD, LAST))):
        ends = len(a) - 1, len(b) - 1
        found = parted(a, b, before=ends)
        assert found is not None
        assert (found.evidence, found.operator.source, found.other_call) == ("path", "train.py:18", "")
    moved = [replace(row, content="other") if row.name.endswith(".out") else row for row in later]
    found = parted(rows(FIRST, SECOND, THIRD), rows(FIRST, SECOND, more, moved))
    assert found is not None
    assert (found.evidence, found.operator.call) == ("output", "aten::add_.Tensor#0")
    assert found.other_call == "aten::add_.Tensor#1"


def test_only_what_came_before_the_difference_is_looked_at() -> None:
    other = rows(FIRST, LAST, call("b(2)/aten::add.Tensor#0", "y", "other", place=BACKWARD))
    assert parted(rows(FIRST, LAST, SECOND), other, before=(len(FIRST), None)) is None


def test_operators_alone_are_no_difference_between_launches() -> None:
    firsts = (FIRST, call("a/aten::mm#0", "x", "?"))
    a, b = (launch_of({0: rows(part, LAST)}, index=at) for at, part in enumerate(firsts))
    assert looked(a, b).step is None


def test_a_look_goes_by_what_a_step_leaves() -> None:
    changed = [replace(row, content="other") for row in LAST]
    a = launch_of({0: rows(FIRST, LAST)})
    b = launch_of({0: rows(call("a/aten::mm#0", "x", "?"), changed)}, index=1)
    look = looked(a, b)
    assert look.step == 3
    assert look.operator is not None
    assert look.operator.operator.operator == "aten::mm"


FINDING = Finding(
    witness="launches", severity="error", cause="backward-operator", launches=(0, 1), step=3, phase="grad_local",
    message="it differs", advice="mend it",
)  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"witness": "ranks"},
        {"cause": "data-content", "phase": "data"},
        {"cause": "hyperparameters", "phase": "param"},
        {"step": None},
    ],
)
def test_only_what_operators_can_make_is_worth_a_look(changes: dict[str, Any]) -> None:
    assert worth_a_look([FINDING]) is FINDING
    twins = replace(FINDING, witness="twins", cause="thread-count")
    assert worth_a_look([twins]) is twins
    assert worth_a_look([replace(FINDING, **changes), FINDING]) is None
    assert worth_a_look([]) is None


def test_the_rate_is_told_where_it_does_not_return() -> None:
    told = without_return(FINDING, [[0, 1, 2, 4], [3]], 4).message
    assert told == "it differs; it was seen in 1 of 5 launches, and a second look (4 launches) did not show it again"


def test_twins_that_do_not_part_again_have_no_rate() -> None:
    told = without_return(replace(FINDING, witness="twins"), [[0], [1]], 4).message
    assert "a second look (4 launches) did not show it again: it is not only what the variants override" in told
    assert "1 of 2" not in told


def test_a_distance_in_words() -> None:
    element = Element(index=(1, 2), values=("1.0", "1.5"), bits=("0x3f800000", "0x3fc00000"))
    distance = Distance(
        max_ulp=4194304, median_ulp=4194304, elements=1, of=6, max_abs=0.5, max_rel=1 / 3, first=(element,)
    )
    assert in_words(distance) == (
        "1 of 6 elements of its output differ, by up to 4,194,304 ULP (median 4,194,304), 0.5 at most, 0.333 relative; "
        "first [1, 2]: 1.0 (0x3f800000) against 1.5 (0x3fc00000)"
    )
