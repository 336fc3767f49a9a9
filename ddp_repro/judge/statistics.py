"""What a few numbers say about all those that could have been drawn: by SciPy, in the words of the field.

Numbers are one metric of independent launches. Intervals on a mean are Student's, which hold with few seeds: measured,
a bootstrap interval that is to cover in 95 of 100 cases covers in 83.5 of them with five.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

EXACT_UP_TO: Final = 16
"""Pairs up to which all 2**n permutations are counted; with more, ``_RESAMPLES`` of them are drawn."""
_RESAMPLES: Final = 99_999
_RESAMPLING_SEED: Final = 20_240_229

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From ``low`` to ``high``, both within."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Tell whether ``value`` lies within."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Where ``n`` numbers lie: ``sd`` is the sample standard deviation, ``mean_in`` and ``sd_in`` are intervals."""

    n: int
    mean: float
    sd: float
    low: float
    high: float
    mean_in: Interval
    sd_in: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """How far B lies from A over ``n`` pairs; a difference is B - A.

    ``p_permutation`` is two-sided, over all swaps within pairs (``is_exact``) or a sample of them; no p of n pairs can
    be smaller than ``smallest_p``. ``p_paired`` and ``p_welch`` are those of Student's t on the pairs and of Welch's t,
    which knows of no pairs; ``None`` where no number varies.
    """

    n: int
    difference: float
    sd: float
    difference_in: Interval
    p_permutation: float
    is_exact: bool
    smallest_p: float
    p_paired: float | None
    p_welch: float | None
    welch_in: Interval | None


def summarise(values: Sequence[float], confidence: float) -> Summary:
    """Return the summary of two or more finite numbers, with Student's and the chi-squared interval."""
    drawn = np.asarray(values, np.float64)
    n, mean, sd = len(drawn), float(drawn.mean()), _sd(drawn)
    tails = np.array([1 + confidence, 1 - confidence]) / 2
    factors = np.sqrt((n - 1) / stats.chi2.ppf(tails, n - 1))
    return Summary(
        n=n,
        mean=mean,
        sd=sd,
        low=float(drawn.min()),
        high=float(drawn.max()),
        mean_in=_around(mean, _quantile(confidence, n) * sd / math.sqrt(n)),
        sd_in=Interval(low=float(sd * factors[0]), high=float(sd * factors[1])),
    )


def prediction(baseline: Sequence[float], further: int, confidence: float) -> Interval:
    """Return where the mean of ``further`` numbers more lies, drawn as the two or more of the ``baseline`` were."""
    drawn = np.asarray(baseline, np.float64)
    n = len(drawn)
    half = _quantile(confidence, n) * _sd(drawn) * math.sqrt(1 / n + 1 / further)
    return _around(float(drawn.mean()), half)


def compare_paired(a: Sequence[float], b: Sequence[float], confidence: float) -> PairedComparison:
    """Return how B compares with A over two or more pairs of finite numbers."""
    before, after = np.asarray(a, np.float64), np.asarray(b, np.float64)
    differences = after - before
    n, mean, sd = len(differences), float(differences.mean()), _sd(differences)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers that are nearly one: what comes of them is told
        welch = stats.ttest_ind(after, before, equal_var=False) if _sd(before) + _sd(after) > 0 else None
        welch_in = None if welch is None else welch.confidence_interval(confidence)
        p_paired = float(stats.ttest_rel(after, before).pvalue) if sd > 0 else None
    return PairedComparison(
        n=n,
        difference=mean,
        sd=sd,
        difference_in=_around(mean, _quantile(confidence, n) * sd / math.sqrt(n)),
        p_permutation=_permutation(before, after),
        is_exact=n <= EXACT_UP_TO,
        smallest_p=smallest_p(n),
        p_paired=p_paired,
        p_welch=None if welch is None else float(welch.pvalue),
        welch_in=None if welch_in is None else Interval(low=float(welch_in.low), high=float(welch_in.high)),
    )


def is_wider(sd: float, n: int, than: float, of: int, alpha: float) -> bool:
    """Tell whether a standard deviation of ``n`` numbers is larger than another one, ``than`` of ``of`` numbers (F)."""
    return than == 0 or float(stats.f.sf((sd / than) ** 2, n - 1, of - 1)) <= alpha


def smallest_p(pairs: int) -> float:
    """Return the smallest p that a two-sided permutation test of so many pairs can reach: all of one sign."""
    return float(2.0 ** (1 - pairs))


def pairs_for(alpha: float) -> int:
    """Return from how many pairs on a two-sided permutation test can reach ``alpha``."""
    return next(n for n in range(1, 1024) if smallest_p(n) <= alpha)


def _permutation(before: Floats, after: Floats) -> float:
    """Return the two-sided p of all swaps within pairs, or of a sample of them where they are too many to count."""

    def statistic(x: Floats, y: Floats, axis: int) -> Floats:
        return np.asarray(np.mean(y - x, axis=axis))

    exact = len(before) <= EXACT_UP_TO
    found = stats.permutation_test(
        (before, after),
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if exact else _RESAMPLES,
        batch=4096,
        rng=np.random.default_rng(_RESAMPLING_SEED),
    )
    return float(found.pvalue)


def _quantile(confidence: float, n: int) -> float:
    return float(stats.t.ppf((1 + confidence) / 2, n - 1))


def _sd(values: Floats) -> float:
    """Return the sample standard deviation; 0 where all are the same number, which rounding could miss."""
    return 0.0 if (values == values[0]).all() else float(values.std(ddof=1))


def _around(mean: float, half: float) -> Interval:
    return Interval(low=mean - half, high=mean + half)
