"""What equal launches leave open, against launches that are thrown like dice."""

import numpy as np
import pytest

from ddp_repro.judge.chance import in_words, undetected


@pytest.mark.parametrize("launches", range(2, 6))
def test_a_few_launches_miss_even_what_every_second_one_shows(launches: int) -> None:
    found = undetected(launches)
    assert (found.rate, found.missed) == (0.5, 0.5 ** (launches - 1))


@pytest.mark.parametrize("launches", [6, 10, 30, 59, 300])
def test_the_rate_is_the_largest_that_is_missed_so_often(launches: int) -> None:
    found = undetected(launches)
    assert found.missed == 0.05
    assert (1 - found.rate) ** launches + found.rate**launches == pytest.approx(0.05)
    bound = 1 - 0.05 ** (1 / launches)  # Clopper and Pearson, no success in N trials
    assert found.rate >= bound - 1e-12
    assert found.rate == pytest.approx(bound, rel=0.05)


def test_more_launches_leave_less_open() -> None:
    rates = [undetected(launches).rate for launches in range(6, 100)]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == len(rates)


@pytest.mark.parametrize("launches", [2, 5, 8, 20])
def test_it_is_so_often_among_launches_thrown_at_random(launches: int) -> None:
    found = undetected(launches)
    thrown = np.random.default_rng(0).random((200_000, launches)) < found.rate
    equal = thrown.all(axis=1) | ~thrown.any(axis=1)
    assert equal.mean() == pytest.approx(found.missed, abs=0.003)


def test_what_is_said() -> None:
    assert in_words(undetected(2)) == (
        "2 equal launches miss a divergence in 50 % of launches 50 % of the time, a rarer one more often"
    )
    assert in_words(undetected(10)) == (
        "10 equal launches miss a divergence in 26 % of launches 5 % of the time, a rarer one more often"
    )
