import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.judge.alignment import occurrences, paired
from ddp_repro.judge.rows import unified
from tests.unit.synthetic import Row, trace_of

NUMBERS = st.lists(st.integers(-3, 3), max_size=20)


@given(NUMBERS)
def test_occurrences_count_what_stands_before(numbers: list[int]) -> None:
    counted = [numbers[:at].count(number) for at, number in enumerate(numbers)]
    assert occurrences(np.array(numbers, np.int64)).tolist() == counted


def test_steps_and_labels_beyond_what_a_product_holds_are_paired_all_the_same() -> None:
    """Labels by the million and steps by the billion: their product does not fit into 64 bits."""
    rows = [Row(step, "op", name, "", "x") for step in (-(2**31), 0, 2**31 - 1) for name in "ba"]
    trace = trace_of(rows)
    labels, (a, b) = unified([trace, trace_of(rows[::-1])])
    labels = type(labels)(
        phases=labels.phases, names=[*labels.names, *map(str, range(50_000))], specs=list(map(str, range(200_000)))
    )
    pairs = paired(labels, a, b)
    assert pairs.a.tolist() == [0, 1, 2, 3, 4, 5]
    assert pairs.b.tolist() == [5, 4, 3, 2, 1, 0]
    assert len(pairs.only_a) == len(pairs.only_b) == 0
