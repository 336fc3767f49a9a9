"""What a number of seeds could have seen at all: the power of Student's paired t, by the noncentral t of SciPy.

The verdict is that of the permutation test, whose power is close to it from some eight pairs on, and lower below.
"""

import math
from typing import Final

from scipy import optimize, stats

MOST_SEEDS: Final = 10_000


def power_of(effect: float, sd: float, n: float, alpha: float) -> float:
    """Return how often ``n`` pairs show a true difference ``effect`` whose pairs spread by ``sd``, two-sided."""
    critical = stats.t.ppf(1 - alpha / 2, n - 1)
    shift = abs(effect) / sd * math.sqrt(n)
    return float(stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift))


def detectable(sd: float, n: int, alpha: float, power: float) -> float:
    """Return the smallest true difference that ``n`` pairs show with ``power``; 0 where pairs do not spread."""
    if sd == 0:
        return 0.0
    wide = 1.0
    while power_of(wide, 1.0, n, alpha) < power:
        wide *= 2
    return sd * float(optimize.brentq(lambda effect: power_of(effect, 1.0, n, alpha) - power, 0.0, wide))


def seeds_needed(effect: float, sd: float, alpha: float, power: float) -> int | None:
    """Return how many pairs show a difference of that size with ``power``; ``None`` beyond ``MOST_SEEDS``."""
    if sd == 0:
        return 2
    low, high = 1, 2
    while high <= MOST_SEEDS and power_of(effect, sd, high, alpha) < power:
        low, high = high, high * 2
    if high > MOST_SEEDS:
        return MOST_SEEDS if power_of(effect, sd, MOST_SEEDS, alpha) >= power else None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power_of(effect, sd, middle, alpha) < power else (low, middle)
    return high
