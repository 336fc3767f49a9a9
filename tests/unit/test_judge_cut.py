"""Launches that were ended early: judged by what they show, and never as equal."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_repro.errors import Verdict
from ddp_repro.judge.cut import reach
from ddp_repro.judge.findings import Finding, Variant
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.judge.parting import parting_of
from ddp_repro.trace.launch import Launch, Parting
from tests.unit.synthetic import PARAMETERS, Ranks, Row, Script, changed, cut, from_step, launch_of, ranks

SCRIPT = Script(world_size=3, workers=2, length=48, epochs=3)
CLEAN = ranks(SCRIPT)
STEPS = max(row.step for row in CLEAN[0])
FIRST = launch_of(CLEAN)
PARTING = Parting(reference=0, step=2, ranks=(1,), phase="grad_local", name="conv.bias")
RULES = Rules(reproduce="the command", expected=2)


def odd(step: int, phase: str, rank: int = 1, content: str = "changed") -> Ranks:
    """Return the clean launch with one rank's row changed, and all that follows from it on every rank."""
    mine = changed(CLEAN[rank], content, step=step, phase=phase, name="loss" if phase == "loss" else "conv.bias")
    after = {r: from_step(rows, step, "grad_reduced", content) for r, rows in {**CLEAN, rank: mine}.items()}
    return after if phase != "param" else {r: from_step(rows, step, "param", content) for r, rows in CLEAN.items()}


def rows_before(launch: Launch, step: int, more: int = 0) -> dict[int, int]:
    """Return how many rows each rank has below a step, and ``more``."""
    return {rank: int(np.count_nonzero(trace.step < step)) + more for rank, trace in launch.traces.items()}


def place(found: Finding) -> tuple[Any, ...]:
    return found.witness, found.cause, found.launches, found.step, found.ranks, found.phase, found.name, found.names


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, STEPS - 1),
    st.sampled_from(["loss", "grad_local", "grad_reduced", "param"]),
    st.lists(st.integers(0, len(CLEAN[0])), min_size=3, max_size=3),
    st.integers(0, 2),
)
def test_wherever_it_was_cut_it_is_never_equal_and_the_first_difference_is_the_same(
    step: int, phase: str, rows: list[int], rank: int
) -> None:
    whole = launch_of(odd(step, phase, rank), index=1)
    beginning = cut(whole, dict(enumerate(rows)))
    expected, found = judge([FIRST, whole], RULES), judge([FIRST, beginning], RULES)
    if reach(beginning) > step:
        assert found.verdict is Verdict.DIVERGED, found.problems
        assert found.classes == [[0], [1]]
        assert [place(one) for one in found.findings[:1]] == [place(one) for one in expected.findings[:1]]
    else:
        assert found.verdict is Verdict.NOT_JUDGED
        assert found.findings == []
        assert found.classes == []


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, len(CLEAN[0])), min_size=3, max_size=3))
def test_an_equal_launch_that_was_cut_shows_nothing(rows: list[int]) -> None:
    beginning = cut(launch_of(CLEAN, index=1), dict(enumerate(rows)))
    for launches in ([FIRST, beginning], [FIRST, launch_of(CLEAN, index=2), beginning]):
        found = judge(launches, replace(RULES, expected=len(launches)))
        assert found.verdict is Verdict.NOT_JUDGED
        assert found.findings == []
        assert found.problems
        assert parting_of(FIRST, beginning, RULES) is None


def test_what_is_said_of_it() -> None:
    whole = launch_of(odd(2, "grad_local"), index=1)
    beginning = cut(whole, rows_before(whole, 4, more=3), parting=PARTING)
    found = judge([FIRST, beginning], RULES)
    assert found.verdict is Verdict.DIVERGED
    assert found.problems == []
    assert found.notes[0] == "launch 1 was ended at step 4, soon after its first difference at step 2: fail_fast"
    assert found.findings[0].message.endswith("compared up to step 3")
    (ended,) = found.ended
    assert (ended.launch, ended.at, ended.step, ended.ranks) == (1, 4, 2, (1,))
    assert (ended.phase, ended.name) == ("grad_local", "conv.bias")
    assert parting_of(FIRST, beginning, RULES) == PARTING


def test_a_launch_that_was_cut_is_in_the_class_that_it_shows() -> None:
    written = {1: odd(2, "grad_local"), 3: odd(2, "grad_local"), 4: odd(5, "loss")}
    launches = [FIRST, *(launch_of(rows, index=index) for index, rows in written.items()), launch_of(CLEAN, index=2)]
    launches = [FIRST, *(cut(one, rows_before(one, 7 + one.index, more=1)) for one in launches[1:4]), launches[4]]
    found = judge(sorted(launches, key=lambda one: one.index), replace(RULES, expected=5))
    assert found.verdict is Verdict.DIVERGED
    assert found.classes == [[0, 2], [1, 3], [4]]
    assert "launches 1 and 3 are equal in bits up to step 7; what came later is not known of launches 1 and 3" in (
        found.notes
    )


def test_two_that_differ_after_one_was_cut_are_not_said_to_be_equal() -> None:
    """What came after the first cut is not known of either: only how far they agree is said."""
    alike = odd(1, "grad_local")
    other = {rank: from_step(rows, 8, "grad_reduced", "later") for rank, rows in alike.items()}
    launches = [launch_of(alike, index=1), launch_of(other, index=2), launch_of(alike, index=3)]
    launches = [cut(one, rows_before(one, at, more=1)) for one, at in zip(launches, (4, 11, 11), strict=True)]
    found = judge([FIRST, *launches], replace(RULES, expected=4))
    assert found.classes == [[0], [1, 2], [3]], "3 differs from 2, and 1 from neither"
    assert any("launches 1 and 2 are equal in bits up to step 3; what came later" in note for note in found.notes)
    assert "launch 0 is alone (launches 1 and 2 are equal as far as they went)" in found.findings[0].message


def test_what_holds_within_it_is_told_once() -> None:
    broken = ranks(replace(SCRIPT, sampler_seed=lambda rank: rank))
    other = launch_of({rank: from_step(rows, 4, "param") for rank, rows in broken.items()}, index=1)
    found = judge([launch_of(broken), cut(other, rows_before(other, 6))], RULES)
    overlap = [one for one in found.findings if one.cause == "shards-overlap"]
    assert [one.launches for one in overlap] == [(0, 1)]


def test_what_its_later_part_might_have_cleared_up_is_not_told_of_it() -> None:
    """Parameters that are averaged every few steps differ on the ranks until then."""

    def by_hand(row: Row, rank: int) -> Row:
        is_equal = row.step < 0 or row.step % 6 == 5
        content = row.content if is_equal else f"{row.content} on {rank}"
        return replace(row, spec=row.spec.replace(" replicated", " unmanaged"), content=content)

    averaged = {
        rank: [by_hand(row, rank) if row.phase in ("init", "param") else row for row in rows]
        for rank, rows in CLEAN.items()
    }
    first = launch_of(averaged)
    other = {rank: changed(rows, step=2, phase="loss") for rank, rows in averaged.items()}
    whole = launch_of(other, index=1)
    expected, found = judge([first, whole], RULES), judge([first, cut(whole, rows_before(whole, 4, more=1))], RULES)
    assert [one.witness for one in expected.findings] == ["launches"]
    assert [place(one) for one in found.findings] == [place(one) for one in expected.findings]


def test_that_ranks_disagree_in_it_is_told() -> None:
    rows = {**CLEAN, 2: from_step(CLEAN[2], 3, "param")}
    whole = launch_of(rows, index=1)
    expected, found = judge([FIRST, whole], RULES), judge([FIRST, cut(whole, rows_before(whole, 6))], RULES)
    assert [one.witness for one in found.findings] == ["launches", "ranks"]
    assert [place(one) for one in found.findings] == [place(one) for one in expected.findings]


def test_a_generator_that_nobody_drew_from_yet_counts_where_the_whole_one_drew() -> None:
    """Its state differs from the beginning; without the cut, that is the first difference."""

    def seeded(content: str, drawn: int) -> Ranks:
        def told(row: Row) -> Row:
            is_it = (row.phase, row.name) == ("rng", "python")
            return replace(row, content=f"{content} {row.step >= drawn}") if is_it else row

        return {rank: [told(row) for row in rows] for rank, rows in CLEAN.items()}

    first, other = launch_of(seeded("a", 10)), seeded("b", 10)
    other = {rank: from_step(rows, 4, "param") for rank, rows in other.items()}
    whole = launch_of(other, index=1)
    expected = judge([first, whole], RULES)
    found = judge([first, cut(whole, rows_before(whole, 6))], RULES)
    assert place(found.findings[0]) == place(expected.findings[0])
    assert (found.findings[0].phase, found.findings[0].step) == ("rng", 0)


@pytest.mark.parametrize("step", [1, 5, 9])
def test_twins_are_cut_by_what_twins_must_have_in_common(step: int) -> None:
    """Evaluation that only one of them makes is no difference, wherever the other is cut."""
    bare = ranks(replace(SCRIPT, evaluate=False))
    variants = (
        Variant(overrides=("train.evaluate=true",), launches=(0,), allow=("experiment",)),
        Variant(overrides=("train.evaluate=false",), launches=(1,), allow=("experiment",)),
    )
    rules = replace(RULES, variants=variants)
    clean = launch_of(bare, index=1)
    assert judge([FIRST, clean], rules).verdict is Verdict.REPRODUCIBLE
    assert parting_of(FIRST, cut(clean, rows_before(clean, step + 1)), rules) is None
    other = launch_of({rank: from_step(rows, step, "param") for rank, rows in bare.items()}, index=1)
    found = judge([FIRST, cut(other, rows_before(other, step + 1, more=1))], rules)
    expected = judge([FIRST, other], rules)
    assert found.verdict is Verdict.DIVERGED
    assert place(found.findings[0]) == place(expected.findings[0])
    assert (found.findings[0].witness, found.findings[0].step, found.findings[0].name) == ("twins", step, PARAMETERS[0])


def test_one_whose_difference_is_ignored_now_is_not_judged() -> None:
    rows = {rank: changed(own, step=2, phase="grad_local", name="conv.bias") for rank, own in CLEAN.items()}
    launch = launch_of(rows, index=1)
    beginning = cut(launch, rows_before(launch, 4), parting=PARTING)
    assert judge([FIRST, beginning], RULES).verdict is Verdict.DIVERGED
    found = judge([FIRST, beginning], replace(RULES, ignore=("grad_local:*",)))
    assert found.verdict is Verdict.NOT_JUDGED
    assert "shows no difference from another launch" in found.problems[0]


def test_a_launch_without_a_rank_is_not_judged() -> None:
    whole = launch_of(odd(2, "grad_local"), index=1)
    beginning = cut(whole, rows_before(whole, 4))
    beginning = replace(beginning, traces={rank: trace for rank, trace in beginning.traces.items() if rank != 2})
    found = judge([FIRST, beginning], RULES)
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.problems == ["launch 1: the trace of rank 2 is missing"]
