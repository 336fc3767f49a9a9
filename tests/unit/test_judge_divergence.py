from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_repro.judge.comparison import Kind, compare_traces, examine_traces
from ddp_repro.judge.divergence import classes, compare_launches
from ddp_repro.trace.schema import PHASES
from tests.unit.synthetic import Row, Rows, Script, changed, from_step, launch_of, ranks, trace_of

SCRIPT = Script(world_size=3, workers=2)
CLEAN = ranks(SCRIPT)
STEPS = max(row.step for row in CLEAN[0])


def place(row: Row) -> int:
    if row.phase == "buffer" and row.spec.endswith(" replicated"):
        return 2 * PHASES.index("forward") - 1
    return 2 * PHASES.index(row.phase) if row.phase in PHASES else 2 * len(PHASES)


def test_equal_traces_are_equal_whatever_the_codes_of_their_labels() -> None:
    rows = CLEAN[0]
    other = trace_of(rows, labels_first=[Row(0, "unheard of", "nobody", "none", ""), *reversed(rows)])
    assert not np.array_equal(trace_of(rows).name, other.name)
    assert compare_traces(trace_of(rows), other) is None
    assert examine_traces(trace_of(rows), other).reordered == 0


@given(st.integers(0, len(CLEAN[0]) - 1))
def test_a_flip_is_found_exactly_where_it_was_planted(at: int) -> None:
    rows = list(CLEAN[0])
    rows[at] = replace(rows[at], content="flipped")
    found = compare_traces(trace_of(CLEAN[0]), trace_of(rows))
    assert found is not None
    assert (found.kind, found.rows) == (Kind.VALUE, (at, at))
    assert (found.step, found.phase, found.name, found.spec) == (
        rows[at].step,
        rows[at].phase,
        rows[at].name,
        rows[at].spec,
    )
    assert found.names == {rows[at].phase: (rows[at].name,)}
    assert (found.differing, found.compared) == (1, len(rows))


@given(st.sets(st.integers(0, len(CLEAN[0]) - 1), min_size=2, max_size=12))
def test_of_several_flips_the_first_in_causal_order_of_the_earliest_step_is_named(flips: set[int]) -> None:
    rows = [replace(row, content="flipped") if at in flips else row for at, row in enumerate(CLEAN[0])]
    found = compare_traces(trace_of(CLEAN[0]), trace_of(rows))
    first = min(flips, key=lambda at: (rows[at].step, place(rows[at]), at))
    assert found is not None
    assert found.rows == (first, first)
    assert found.differing == len(flips)
    in_step = {rows[at].phase for at in flips if rows[at].step == rows[first].step}
    assert set(found.names) == in_step


@given(st.integers(0, STEPS - 1), st.randoms(use_true_random=False))
def test_other_order_outside_data_is_no_difference(step: int, random) -> None:  # type: ignore[no-untyped-def]
    concerned = [at for at, row in enumerate(CLEAN[0]) if row.step == step and row.phase not in ("data", "rng")]
    shuffled = random.sample(concerned, len(concerned))
    rows = list(CLEAN[0])
    for to, at in zip(concerned, shuffled, strict=True):
        rows[to] = CLEAN[0][at]
    keys = [(row.phase, row.name, row.spec) for row in (CLEAN[0][at] for at in shuffled)]
    assert len(set(keys)) == len(keys), "each row of a step has its own labels here"
    comparison = examine_traces(trace_of(CLEAN[0]), trace_of(rows))
    assert comparison.divergence is None
    assert (comparison.reordered > 0) == (shuffled != concerned)


def test_other_order_of_data_is_a_difference() -> None:
    rows = list(CLEAN[0])
    images = next(at for at, row in enumerate(rows) if row.step == 3 and row.name.endswith(".batch[0]"))
    rows[images], rows[images + 1] = rows[images + 1], rows[images]
    found = compare_traces(trace_of(CLEAN[0]), trace_of(rows))
    assert found is not None
    assert (found.kind, found.step, found.phase) == (Kind.ORDER, 3, "data")


@given(st.integers(0, len(CLEAN[0]) - 1))
def test_a_row_that_is_missing_or_extra_is_a_difference_of_its_own_kind(at: int) -> None:
    rows = CLEAN[0][:at] + CLEAN[0][at + 1 :]
    key = CLEAN[0][at].step, CLEAN[0][at].phase, CLEAN[0][at].name
    missing = compare_traces(trace_of(CLEAN[0]), trace_of(rows))
    extra = compare_traces(trace_of(rows), trace_of(CLEAN[0]))
    assert missing is not None
    assert extra is not None
    assert (missing.step, missing.phase) == (extra.step, extra.phase) == key[:2]
    if sum((row.step, row.phase, row.name) == key for row in CLEAN[0]) == 1:  # of several alike, the others move up
        assert missing.name == extra.name == key[2]
        assert (missing.kind, missing.rows) == (Kind.MISSING, (at, None))
        assert (extra.kind, extra.rows) == (Kind.EXTRA, (None, at))


def test_another_shape_is_a_difference_of_its_own_kind() -> None:
    rows = [replace(row, spec="float32[9]") if row.phase == "grad_local" and row.step == 1 else row for row in CLEAN[0]]
    found = compare_traces(trace_of(CLEAN[0]), trace_of(rows))
    assert found is not None
    assert (found.kind, found.step, found.phase) == (Kind.SPEC, 1, "grad_local")
    assert found.differing == 3


def test_a_longer_trace_differs_where_the_shorter_ends() -> None:
    short = [row for row in CLEAN[0] if row.step < 4]
    found = compare_traces(trace_of(short), trace_of(CLEAN[0]))
    assert found is not None
    assert (found.kind, found.step) == (Kind.EXTRA, 4)


def test_an_empty_trace_is_compared_too() -> None:
    assert compare_traces(trace_of([]), trace_of([])) is None
    found = compare_traces(trace_of([]), trace_of(CLEAN[0]))
    assert found is not None
    assert (found.kind, found.step, found.phase) == (Kind.EXTRA, -1, "init")


def test_buffers_at_the_entry_of_the_forward_come_before_the_loss() -> None:
    rows = changed(changed(CLEAN[0], step=2, phase="loss"), step=2, phase="buffer", spec="float32[4] replicated")
    found = compare_traces(trace_of(CLEAN[0]), trace_of(rows))
    assert found is not None
    assert (found.phase, found.spec) == ("buffer", "float32[4] replicated")


SMALL = st.lists(
    st.builds(
        Row,
        step=st.integers(-1, 2),
        phase=st.sampled_from(["data", "loss", "buffer", "param", "unheard"]),
        name=st.sampled_from("ab"),
        spec=st.sampled_from(["int64[]", "int64[] replicated"]),
        content=st.sampled_from("xy"),
    ),
    max_size=10,
).map(lambda rows: sorted(rows, key=lambda row: row.step))


def expected(a: Rows, b: Rows) -> tuple[int, int] | None:
    """Compare row by row in plain Python; return step and causal place of the first difference."""
    held: list[dict[tuple[int, str, str, str], list[int]]] = [defaultdict(list), defaultdict(list)]
    for rows, side in zip((a, b), held, strict=True):
        for at, row in enumerate(rows):
            side[row.step, row.phase, row.name, row.spec].append(at)
    differing: list[Row] = []
    both: list[tuple[int, int]] = []
    for key in held[0].keys() | held[1].keys():
        left, right = held[0][key], held[1][key]
        pairs = list(zip(left, right, strict=False))
        differing += [a[x] for x, y in pairs if a[x].content != b[y].content]
        differing += [a[x] for x in left[len(right) :]] + [b[y] for y in right[len(left) :]]
        both += [pair for pair in pairs if key[1] == "data"]
    both.sort()
    for (x, y), in_order in zip(both, sorted(y for _, y in both), strict=True):
        if y != in_order:
            differing.append(a[x])
            break
    return min(((row.step, place(row)) for row in differing), default=None)


@given(SMALL, SMALL)
@settings(max_examples=400)
def test_agrees_with_a_plain_comparison_and_is_symmetric(a: Rows, b: Rows) -> None:
    found = compare_traces(trace_of(a), trace_of(b))
    swapped = compare_traces(trace_of(b), trace_of(a))
    assert (found and (found.step, found.place)) == expected(a, b)
    assert (found is None) == (swapped is None)
    if found is not None and swapped is not None:
        assert (found.step, found.place, found.differing) == (swapped.step, swapped.place, swapped.differing)


def test_blames_the_ranks_whose_input_to_the_reduction_differs() -> None:
    other = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in CLEAN.items()}
    other[1] = changed(other[1], step=2, phase="grad_local", name="conv.bias")
    found = compare_launches(launch_of(CLEAN), launch_of(other))
    assert found is not None
    assert found.first is not None
    assert (found.first.step, found.first.phase, found.first.name) == (2, "grad_local", "conv.bias")
    assert (found.ranks, found.reached) == ((1,), (0, 2))


def test_names_all_ranks_where_only_the_reduction_differs() -> None:
    other = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in CLEAN.items()}
    found = compare_launches(launch_of(CLEAN), launch_of(other))
    assert found is not None
    assert found.first is not None
    assert (found.first.phase, found.ranks, found.reached) == ("grad_reduced", (0, 1, 2), ())


def test_the_earliest_step_wins_over_the_ranks() -> None:
    other = dict(CLEAN)
    other[0] = changed(CLEAN[0], step=3, phase="loss")
    other[2] = changed(CLEAN[2], step=1, phase="optimizer", name="group0.lr")
    found = compare_launches(launch_of(CLEAN), launch_of(other))
    assert found is not None
    assert found.first is not None
    assert (found.first.step, found.first.phase, found.ranks) == (1, "optimizer", (2,))
    assert set(found.by_rank) == {0, 2}


def test_a_missing_rank_is_a_divergence() -> None:
    found = compare_launches(launch_of(CLEAN), launch_of({0: CLEAN[0], 1: CLEAN[1]}))
    assert found is not None
    assert (found.first, found.missing, found.ranks) == (None, (2,), (2,))


@pytest.mark.parametrize(
    ("which", "expected_classes"),
    [("aaa", [[0, 1, 2]]), ("aba", [[0, 2], [1]]), ("abb", [[0], [1, 2]]), ("abc", [[0], [1], [2]])],
)
def test_launches_fall_into_classes_of_equal_bits(which: str, expected_classes: list[list[int]]) -> None:
    made = {letter: {**CLEAN, 1: changed(CLEAN[1], letter, step=1, phase="loss")} for letter in "abc"}
    launches = [launch_of(made[letter], index=index) for index, letter in enumerate(which)]
    assert classes(launches) == expected_classes


def test_only_steps_before_the_given_one_are_compared() -> None:
    other = {**CLEAN, 0: changed(CLEAN[0], step=3, phase="loss")}
    assert compare_launches(launch_of(CLEAN), launch_of(other), before=3) is None
    assert compare_launches(launch_of(CLEAN), launch_of(other), before=4) is not None
