from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.config import ResumeOptions, Stop
from ddp_repro.errors import ReproError
from ddp_repro.run.stops import Extent, every_of, points

LONG = Extent(steps=24, epochs=(0, 8, 16))


def test_by_default_it_is_stopped_where_resuming_goes_wrong() -> None:
    assert points(ResumeOptions(), LONG) == [(4,), (8,), (9,), (2, 5), (1,)]


def test_a_training_of_one_epoch_has_no_second_one_to_stop_in() -> None:
    assert points(ResumeOptions(), Extent(steps=6, epochs=(0,))) == [(3,), (2, 4), (1,)]


def test_what_is_asked_for_is_taken_as_it_is() -> None:
    assert points(ResumeOptions(at=[5, [3, 6]]), LONG) == [(5,), (3, 6)]
    assert points(ResumeOptions(stop_after=7), LONG) == [(7,)]


@pytest.mark.parametrize("at", [[0], [-1], ["two"], [[]], [[3, 3]], [[6, 3]], [True], [1.5]])
def test_what_is_no_step_is_refused(at: list[Any]) -> None:
    with pytest.raises(ReproError, match=r"resume\.at holds"):
        points(ResumeOptions(at=at), LONG)


def test_a_step_that_never_comes_is_refused() -> None:
    with pytest.raises(ReproError, match="names step 24, and the training takes 24"):
        points(ResumeOptions(at=[24]), LONG)
    with pytest.raises(ReproError, match="no point at which it can be stopped"):
        points(ResumeOptions(), Extent(steps=1, epochs=(0,)))


@given(
    steps=st.integers(2, 60),
    epoch=st.integers(1, 30),
    every=st.none() | st.integers(1, 9),
    stop=st.sampled_from(Stop),
)
def test_every_point_lies_within_the_training(steps: int, epoch: int, every: int | None, stop: Stop) -> None:
    extent = Extent(steps=steps, epochs=tuple(range(0, steps, epoch)))
    options = ResumeOptions(stop=stop, every=every if stop is Stop.kill else None)
    try:
        found = points(options, extent)
    except ReproError:
        assert steps <= 2 * every_of(options, extent)
        return
    assert len(set(found)) == len(found)
    for stops in found:
        assert stops[0] >= 1
        assert stops[-1] < steps
        assert all(a < b for a, b in pairwise(stops))
        between = every_of(options, extent)
        if stop is Stop.kill and between > 1:
            assert all(step > between and step % between for step in stops)
