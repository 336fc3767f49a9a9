"""The statistics against worked examples that were published, and against simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from ddp_repro.judge.power import MOST_SEEDS, detectable, power_of, seeds_needed
from ddp_repro.judge.statistics import Floats, compare_paired, pairs_for, prediction, smallest_p, summarise

# Cushny and Peebles (1905), hours of sleep gained, as "Student" (1908) took them: R's data set `sleep`.
FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]

# Darwin's maize (1876) as Fisher took it in The Design of Experiments (1935), cross- less self-fertilised, 1/8 inch.
MAIZE = [49.0, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]

# Load at failure of 22 specimens of alloy U-700, MPa: Montgomery and Runger, Applied Statistics and Probability for
# Engineers, examples 8-4 and 8-8 of the third edition, where the deviation is rounded to 3.55.
ADHESION = [
    19.8, 10.1, 14.9, 7.5, 15.4, 15.4, 15.4, 18.5, 7.9, 12.7, 11.9, 11.4, 11.4, 14.1, 17.6, 16.7, 15.8, 19.5, 8.8, 13.6,
    11.9, 11.4,
]  # fmt: skip


def test_mean_and_next_specimen_as_in_montgomery_and_runger() -> None:
    found = summarise(ADHESION, 0.95)
    assert (found.n, round(found.mean, 2), round(found.sd, 2)) == (22, 13.71, 3.55)
    assert [found.mean_in.low, found.mean_in.high] == pytest.approx([12.14, 15.28], abs=0.01)
    next_one = prediction(ADHESION, 1, 0.95)
    assert [next_one.low, next_one.high] == pytest.approx([6.16, 21.26], abs=0.015)


def test_the_bound_of_a_variance_as_in_montgomery_and_runger() -> None:
    """Filling bottles, example 8-6: 20 of a variance of 0.0153; that of all is 0.0287 at most, at 95 % to one side."""
    drawn = np.random.default_rng(0).normal(0.0, 1.0, 20)
    filled = drawn / drawn.std(ddof=1) * math.sqrt(0.0153)
    found = summarise(filled.tolist(), 0.90)
    assert found.sd_in.high**2 == pytest.approx(0.0287, abs=5e-5)


def test_the_mean_as_in_r_t_test_extra_data_sleep() -> None:
    found = summarise(FIRST_DRUG + SECOND_DRUG, 0.95)
    assert found.mean == pytest.approx(1.54)
    assert (found.low, found.high, found.n) == (-1.6, 5.5, 20)
    assert [found.mean_in.low, found.mean_in.high] == pytest.approx([0.5955845, 2.4844155])


def test_pairs_as_in_r_t_test_sleep_paired() -> None:
    found = compare_paired(FIRST_DRUG, SECOND_DRUG, 0.95)
    assert found.difference == pytest.approx(1.58)
    assert found.p_paired == pytest.approx(0.002833, abs=5e-7)
    assert [found.difference_in.low, found.difference_in.high] == pytest.approx([0.7001142, 2.4598858])


def test_welch_as_in_r_t_test_extra_by_group_data_sleep() -> None:
    found = compare_paired(FIRST_DRUG, SECOND_DRUG, 0.95)
    assert found.welch_in is not None
    assert found.p_welch == pytest.approx(0.07939, abs=5e-6)
    assert [found.welch_in.low, found.welch_in.high] == pytest.approx([-0.2054832, 3.3654832])


def test_permutations_as_fisher_counted_them() -> None:
    # 835 of the 32,768 sums are larger than the one observed and 28 equal it; to both sides that is twice as many.
    found = compare_paired([0.0] * len(MAIZE), MAIZE, 0.95)
    assert found.is_exact
    assert found.p_permutation == pytest.approx(2 * 863 / 32_768)
    assert found.p_paired == pytest.approx(0.0497, abs=5e-5)


def test_power_as_in_g_power_and_in_dalgaard() -> None:
    assert power_of(0.5, 1.0, 34, 0.05) == pytest.approx(0.8077775, abs=5e-7)  # G*Power: paired, dz = 0.5
    assert seeds_needed(0.5, 1.0, 0.05, 0.8) == 34
    # Dalgaard, Introductory Statistics with R, 8.3: power.t.test(delta=10, sd=10*sqrt(2), power=0.85, type="paired")
    assert seeds_needed(10, 10 * math.sqrt(2), 0.05, 0.85) == math.ceil(19.96892)
    assert power_of(10, 10 * math.sqrt(2), 19.96892, 0.05) == pytest.approx(0.85, abs=1e-5)


def test_what_can_be_detected_and_how_many_are_needed_are_each_others_inverse() -> None:
    for n in (5, 6, 12, 40):
        effect = detectable(2.0, n, 0.05, 0.8)
        assert power_of(effect, 2.0, n, 0.05) == pytest.approx(0.8)
        assert seeds_needed(effect * 1.0001, 2.0, 0.05, 0.8) == n
    assert seeds_needed(1e-4, 1.0, 0.05, 0.8) is None
    assert seeds_needed(0.0281, 1.0, 0.05, 0.8) in range(9_000, MOST_SEEDS + 1)


def test_five_pairs_cannot_and_six_can() -> None:
    assert compare_paired([0.0] * 5, [1.0, 2, 3, 4, 5], 0.95).p_permutation == smallest_p(5) == 0.0625
    assert compare_paired([0.0] * 6, [1.0, 2, 3, 4, 5, 6], 0.95).p_permutation == smallest_p(6) == 0.03125
    assert (pairs_for(0.05), pairs_for(0.01), pairs_for(0.1)) == (6, 8, 5)


def test_many_pairs_are_sampled_and_that_is_said() -> None:
    drawn = np.random.default_rng(1).normal(0.3, 1, 30)
    found = compare_paired([0.0] * 30, drawn.tolist(), 0.95)
    assert not found.is_exact
    assert found.p_permutation == pytest.approx(found.p_paired, abs=0.01)
    assert compare_paired([0.0] * 30, drawn.tolist(), 0.95) == found  # the same numbers, the same p


def test_numbers_that_do_not_vary() -> None:
    same = compare_paired([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], 0.95)
    assert (same.difference, same.sd, same.p_permutation, same.p_paired) == (0.0, 0.0, 1.0, None)
    constant = compare_paired([0.9] * 6, [0.9] * 6, 0.95)
    assert (constant.p_welch, constant.welch_in, constant.p_permutation) == (None, None, 1.0)
    assert summarise([0.1 + 0.2] * 7, 0.95).sd == 0.0
    assert detectable(0.0, 6, 0.05, 0.8) == 0.0


def test_student_covers_what_it_says_with_five_seeds_where_a_bootstrap_does_not() -> None:
    rng = np.random.default_rng(7)
    trials = rng.normal(0.0, 1.0, (4_000, 5))
    covered = sum(summarise(list(one), 0.95).mean_in.holds(0.0) for one in trials) / len(trials)
    assert covered == pytest.approx(0.95, abs=0.011)
    low, high = np.quantile(_bootstrap_means(trials, rng), [0.025, 0.975], axis=1)
    assert np.mean((low <= 0) & (high >= 0)) < 0.87


def _bootstrap_means(trials: Floats, rng: np.random.Generator) -> Floats:
    chosen = rng.integers(0, trials.shape[1], (trials.shape[0], 400, trials.shape[1]))
    return np.asarray(np.take_along_axis(trials[:, None, :], chosen, axis=2).mean(axis=2))


@pytest.mark.parametrize(("seeds", "further"), [(5, 1), (6, 3), (10, 1)])
def test_later_runs_lie_where_they_are_predicted(seeds: int, further: int) -> None:
    rng = np.random.default_rng(seeds)
    trials = rng.normal(3.0, 2.0, (3_000, seeds + further))
    held = [prediction(list(one[:seeds]), further, 0.95).holds(float(one[seeds:].mean())) for one in trials]
    assert np.mean(held) == pytest.approx(0.95, abs=0.013)


def test_the_interval_of_the_standard_deviation_covers_it() -> None:
    trials = np.random.default_rng(3).normal(0.0, 2.0, (3_000, 6))
    assert np.mean([summarise(list(one), 0.95).sd_in.holds(2.0) for one in trials]) == pytest.approx(0.95, abs=0.013)
    # NIST/SEMATECH e-Handbook 7.2.3 has the chi-squared quantiles: of 9 degrees of freedom 2.700 and 19.023.
    assert stats.chi2.ppf([0.025, 0.975], 9) == pytest.approx([2.700, 19.023], abs=5e-4)
