"""Equal columns are held once, and what is taken out of them is what was read."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.judge.repeated import holds_the_same
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.observations import Values
from ddp_repro.trace.reader import read_trace
from ddp_repro.trace.sharing import SharedColumns
from ddp_repro.verdict import load_launches
from tests.unit.synthetic import Script, Writing, changed, identity, ranks, trace_of, write_launch

CLEAN = ranks(Script(world_size=3, epochs=1, length=36))
COLUMNS = ("step", "seq", "phase", "name", "spec", "digest", "valid")


@given(st.lists(st.none() | st.floats(), max_size=30), st.data())
def test_values_are_taken_out_as_of_an_array(numbers: list[float | None], data: st.DataObject) -> None:
    dense = np.array([np.nan if number is None else number for number in numbers], np.float64)
    rows = np.array([row for row, number in enumerate(numbers) if number is not None], np.int64)
    values = Values(rows=rows, numbers=dense[rows], count=len(numbers))
    assert len(values) == len(dense)
    np.testing.assert_array_equal(np.asarray(values), dense)
    np.testing.assert_array_equal(values[2:5], dense[2:5])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(dense), max_size=len(dense))), np.bool_)
    np.testing.assert_array_equal(values[mask], dense[mask])
    if numbers:
        places = st.integers(-len(numbers), len(numbers) - 1)
        which = np.array(data.draw(st.lists(places)), np.int64)
        np.testing.assert_array_equal(values[which], dense[which])
        one = data.draw(places)
        np.testing.assert_array_equal(float(values[one]), dense[one])


def test_equal_columns_are_the_same_and_all_hold_what_was_read(tmp_path: Path) -> None:
    other = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="grad_local", name="conv.bias")}
    for number, rows in enumerate((CLEAN, CLEAN, other)):
        write_launch(tmp_path, number, rows)
    first, same, apart = load_launches(RunFolder(tmp_path).launches())
    for rank in CLEAN:
        assert all(getattr(first.traces[rank], name) is getattr(same.traces[rank], name) for name in COLUMNS)
        assert first.traces[rank].value is same.traces[rank].value
        assert first.traces[0].step is first.traces[rank].step
    assert apart.traces[1].digest is not first.traces[1].digest
    assert apart.traces[1].name is first.traces[1].name
    for launch in (first, same, apart):
        for rank, trace in launch.traces.items():
            read = read_trace(launch.path / f"rank-{rank}.arrows")
            assert trace.content == read.content
            assert [trace.observation(row) for row in range(len(trace))] == [
                read.observation(row) for row in range(len(read))
            ]
    assert holds_the_same(first, same)
    assert not holds_the_same(first, apart)


def test_zeros_of_both_signs_and_columns_of_one_content_stay_apart() -> None:
    shared = SharedColumns()
    for sign in (0.0, -0.0):
        row = next(row for row in CLEAN[0] if row.phase == "loss")
        trace = shared.shared(trace_of([type(row)(0, "loss", "loss", "float32[]", "a", sign)]))
        assert np.signbit(float(trace.value[0])) == np.signbit(sign)
        assert trace.step.dtype == np.int32
        assert trace.seq.dtype == np.int64


@pytest.mark.parametrize("is_other", [False, True])
def test_what_is_found_within_a_launch_is_told_of_each_that_holds_the_same(tmp_path: Path, is_other: bool) -> None:
    broken = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="param", name="conv.bias")}
    odd = identity(experiment__world_size=3, software__torch="2.12.0")
    writing = Writing(identities={1: odd} if is_other else {})
    write_launch(tmp_path, 0, broken)
    write_launch(tmp_path, 1, broken, writing)
    judged = judge(load_launches(RunFolder(tmp_path).launches()), Rules(allow=("software",)))
    told = {(found.witness, found.cause, found.launches, found.step) for found in judged.findings}
    assert [(ranks, step) for witness, _, ranks, step in told if witness == "ranks"] == [((0, 1), 2)]
    assert (("invariants", "software-differs", (1,), None) in told) == is_other
