"""A spread in plain sentences; numbers have the digits that the spread leaves them."""

import math
from collections.abc import Sequence

from ddp_repro.judge.power import MOST_SEEDS
from ddp_repro.judge.spread import Conclusion, Paired, Spread, SpreadRules
from ddp_repro.judge.statistics import Interval, pairs_for, smallest_p
from ddp_repro.judge.wording import counted


def sentence(spread: Spread, rules: SpreadRules) -> str:
    """Return what a run of `spread` came to, in one sentence."""
    if spread.conclusion is Conclusion.NOT_JUDGED:
        return f"nothing could be concluded: {next(iter(spread.problems), 'too few launches ended')}"
    if spread.paired is not None:
        return _compared(spread.paired, spread.conclusion, rules)
    if spread.expected is not None:
        return _held(spread, rules)
    own = spread.own
    assert own is not None
    show = shown(own.sd)
    return (
        f"over {counted(own.n, 'seed')} the metric is {show(own.mean)} on average, with a standard deviation of "
        f"{show(own.sd)}, from {show(own.low)} to {show(own.high)}; the mean of all seeds lies within "
        f"{told(own.mean_in, show)} ({percent(rules.confidence)})"
    )


def _compared(paired: Paired, conclusion: Conclusion, rules: SpreadRules) -> str:
    found = paired.comparison
    show = shown(found.sd or abs(found.difference))
    what = f"{'gain' if paired.gain > 0 else 'worsening'} of {show(abs(paired.gain))}"
    evidence = f"{counted(found.n, 'paired seed')}, p = {found.p_permutation:.2g}"
    if conclusion is Conclusion.IMPROVED:
        return f"the {what} is more than seeds explain: an improvement ({evidence})"
    if conclusion is Conclusion.WORSE:
        return f"the {what} is more than seeds explain: the candidate is worse ({evidence})"
    if paired.gain == 0:
        return f"the candidate moves the metric by nothing on average: not an improvement by this evidence ({evidence})"
    verdict = "not an improvement by this evidence" if paired.gain > 0 else "neither better nor worse by this evidence"
    if found.n < pairs_for(rules.alpha):
        return (
            f"the {what} cannot be judged with {counted(found.n, 'paired seed')}, whose p is {found.smallest_p:.2g} at "
            f"the least: {verdict}; {_needed(paired)}"
        )
    return f"the {what} is inside the spread of seeds (p = {found.p_permutation:.2g}): {verdict}; {_needed(paired)}"


def _needed(paired: Paired) -> str:
    if paired.needed is None:
        return f"more than {MOST_SEEDS:,} seeds would be needed to show so little"
    if paired.needed <= paired.comparison.n:
        return "more seeds are needed, since these do not agree on its sign"
    return f"about {paired.needed:,} seeds would be needed"


def _held(spread: Spread, rules: SpreadRules) -> str:
    expected, n = spread.expected, len(rules.baseline or ())
    assert expected is not None
    show = shown((expected.high - expected.low) / 4)
    where = f"{told(expected, show)}, where {percent(rules.confidence)} of such runs lie by the baseline's {n} seeds"
    if spread.conclusion is Conclusion.WITHIN:
        return f"the metric is within {where}: no change by this evidence, which is no proof that there is none"
    return f"the metric is outside {where}: more than seeds explain"


def limits(spread: Spread, rules: SpreadRules) -> list[str]:
    """Return what this number of seeds can and cannot show."""
    notes: list[str] = []
    own, paired = spread.own, spread.paired
    if own is not None and own.sd > 0:
        show = shown(own.sd)
        notes.append(
            f"the standard deviation of {counted(own.n, 'seed')} is itself known to between {show(own.sd_in.low)} and "
            f"{show(own.sd_in.high)} only"
        )
    if paired is not None:
        found = paired.comparison
        show = shown(found.sd or 1.0)
        if paired.detectable is None:
            notes.append(
                f"{counted(found.n, 'paired seed')} could not have shown any effect, however large: p is "
                f"{smallest_p(found.n):.4g} at the least"
            )
        elif found.sd > 0:
            notes.append(
                f"{counted(found.n, 'paired seed')} could have shown a difference of {show(paired.detectable)} "
                f"({percent(rules.power)} of the time); smaller ones would mostly be missed"
            )
    return [*notes, *_same_seed(spread)]


def _same_seed(spread: Spread) -> list[str]:
    runs, own = spread.runs, spread.own
    if runs is None:
        return []
    if runs.same_bits:
        return [f"the same seed gives the same bits ({runs.launches} launches with seed {runs.seed})"]
    show = shown(runs.sd or (own.sd if own else 0.0))
    told_runs = f"the same seed spreads by {show(runs.sd)} ({runs.launches} launches with seed {runs.seed})"
    if own is not None and runs.sd >= own.sd > 0:
        return [f"{told_runs}, no less than seeds do: what is told as seeds' is what any two launches differ by"]
    return [f"{told_runs}: `check` says where"]


def shown(scale: float) -> "_Shown":
    """Return how numbers are written that spread by ``scale``: to two digits of that."""
    return _Shown(scale)


class _Shown:
    def __init__(self, scale: float) -> None:
        usable = math.isfinite(scale) and scale > 0
        self._decimals = min(max(1 - math.floor(math.log10(scale)), 0), 12) if usable else None

    def __call__(self, number: float) -> str:
        if self._decimals is None or abs(number) >= 1e12:
            return f"{number:.6g}"
        return f"{number:,.{self._decimals}f}"


def told(interval: Interval, show: "_Shown") -> str:
    """Return an interval in words."""
    return f"{show(interval.low)} to {show(interval.high)}"


def percent(share: float) -> str:
    """Return a share of one in percent."""
    return f"{share * 100:.4g} %"


def told_values(values: Sequence[float]) -> str:
    """Return numbers as they are read back."""
    return ", ".join(repr(value) for value in values)
