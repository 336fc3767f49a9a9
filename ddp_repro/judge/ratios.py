"""How many times longer steps take: the ratio of launches that took turns, with a bootstrap interval by SciPy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from ddp_repro.judge.statistics import Interval, pairs_for

_RESAMPLES: Final = 9_999
_SEED: Final = 20_240_229


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The geometric mean of ``pairs`` ratios, and the interval in which the true one lies.

    ``enough`` pairs are needed for an interval that covers about what it says: with n pairs it never does in more than
    1 - 2**(1 - n) of cases.
    """

    ratio: float
    within: Interval
    pairs: int
    enough: int

    @property
    def is_shown(self) -> bool:
        """Tell whether it is another than 1 by this evidence."""
        return self.pairs >= self.enough and not self.within.holds(1.0)


def ratio_of(times: Sequence[float], reference: Sequence[float], confidence: float) -> Ratio:
    """Return how many times longer ``times`` are than ``reference``, pair by pair; two pairs or more, all above 0.

    Resampled are whole launches, since steps of one launch are slow or fast together. The percentiles are those of
    Hesterberg (2015), widened so that the interval is about Student's where the logarithms are normal: the bare ones of
    a few numbers cover too little.
    """
    logs = np.log(np.asarray(times, np.float64) / np.asarray(reference, np.float64))
    mean = float(logs.mean())
    within = _exp(_bootstrap(logs, confidence))
    return Ratio(ratio=math.exp(mean), within=within, pairs=len(logs), enough=pairs_for(1 - confidence))


def _bootstrap(logs: "np.typing.NDArray[np.float64]", confidence: float) -> Interval:
    if (logs == logs[0]).all():
        return Interval(low=float(logs[0]), high=float(logs[0]))
    found = stats.bootstrap(
        (logs,),
        np.mean,
        method="percentile",
        confidence_level=_widened(confidence, len(logs)),
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(low=float(found.low), high=float(found.high))


def _widened(confidence: float, n: int) -> float:
    """Return the confidence whose normal quantile is Student's, for a spread that was computed with n and not n - 1."""
    quantile = stats.t.ppf((1 + confidence) / 2, n - 1) * math.sqrt(n / (n - 1))
    return float(1 - 2 * stats.norm.sf(quantile))


def _exp(logs: Interval) -> Interval:
    return Interval(low=math.exp(logs.low), high=math.exp(logs.high))
