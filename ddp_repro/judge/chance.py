"""What launches that are all equal leave open: a divergence that shows in some launches only."""

from typing import Final

from ddp_repro.judge.findings import Chance
from ddp_repro.judge.wording import counted

_MISSED: Final = 0.05
_HALVINGS: Final = 60


def undetected(launches: int) -> Chance:
    """Return the largest rate of divergence that so many equal launches (two or more) miss 5 % of the time or more.

    Say that each launch, on its own, gives other bits than the usual ones with probability p; no more than 1/2, or
    those would be the usual ones. N launches are equal where all give the usual bits, or all the same other ones. That
    is likeliest where there is but one kind of other bits: (1 - p)^N + p^N, the most that N equal launches can come to
    by chance at that p, and falling in p. Its root at 5 % is told: the exact binomial bound for no success in N trials
    (Clopper and Pearson, 1934; about 3/N, the "rule of three"), less what two kinds of bits take from it. Below six
    launches there is no root: even of p = 1/2 they miss 2^(1-N), which is told then.
    """
    assert launches > 1, "one launch is equal to nothing"
    low, high = 0.0, 0.5
    if _all_equal(high, launches) >= _MISSED:
        return Chance(launches=launches, rate=high, missed=_all_equal(high, launches))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _all_equal(middle, launches) > _MISSED else (low, middle)
    return Chance(launches=launches, rate=high, missed=_MISSED)


def in_words(chance: Chance) -> str:
    """Return "2 equal launches miss a divergence in 50 % of launches 50 % of the time, a rarer one more often"."""
    return (
        f"{counted(chance.launches, 'equal launch')} miss a divergence in {100 * chance.rate:.2g} % of launches "
        f"{100 * chance.missed:.2g} % of the time, a rarer one more often"
    )


def _all_equal(rate: float, launches: int) -> float:
    return float((1 - rate) ** launches + rate**launches)
