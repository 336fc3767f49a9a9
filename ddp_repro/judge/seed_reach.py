"""Whether the seeds that were given arrived: two seeds whose training ends in the same bits are one seed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ddp_repro.judge.spread import (
    LEAST_FOR_A_BASELINE,
    Arm,
    Caution,
    SpreadRules,
    Trial,
    first_of_each,
    run_to_run,
)
from ddp_repro.judge.statistics import is_wider, pairs_for, smallest_p, summarise
from ddp_repro.judge.wording import counted, listed, numbered

_LEAST_FOR_A_SPREAD: Final = 3
_HOW: Final = (
    "A script gets its seed by seeding=inject, unless it seeds itself, or where {seed} stands in workload.args or in "
    "launcher.env"
)


def problems_of(trials: Sequence[Trial], rules: SpreadRules) -> list[str]:
    """Return why nothing can be concluded from these trials."""
    found = [problem for arm in _arms(trials) if (problem := _unreached(first_of_each(trials, arm), arm))]
    if not found and (rules.expects_candidate or rules.baseline is not None):
        found += [
            f"{listed(alike)} ended in the same bits: they are one seed to the training, and would count as several"
            for arm in _arms(trials)
            if (alike := _alike_seeds(first_of_each(trials, arm)))
        ]
    baseline = rules.baseline
    if baseline is not None and len(baseline) < LEAST_FOR_A_BASELINE:
        found.append(f"the baseline has {counted(len(baseline), 'seed')}, of which no spread can be told")
    elif baseline is not None and len(set(baseline)) == 1:
        found.append(f"all {counted(len(baseline), 'seed')} of the baseline gave {baseline[0]!r}: it shows no spread")
    return found


def cautions_of(trials: Sequence[Trial], rules: SpreadRules) -> list[Caution]:
    """Return what weakens what these trials say."""
    return [*_too_few(trials, rules), *_alike(trials), *_idle(trials), *_unproven(trials, rules)]


def _arms(trials: Sequence[Trial]) -> list[Arm]:
    return [arm for arm in ("A", "B") if any(trial.arm == arm for trial in trials)]


def _unreached(trials: Mapping[int, Trial], arm: Arm) -> str:
    """Return that no seed moved anything, where that is so."""
    values, ends = {trial.value for trial in trials.values()}, {trial.end for trial in trials.values()}
    if len(trials) < 2 or len(values) > 1 or (len(ends) > 1 and None not in ends):
        return ""
    whose = "the script" if arm == "A" else "the script of the candidate"
    as_trained = "what was trained ended in the same bits too" if None not in ends else "every digit is the same"
    seeds = numbered("seed", list(trials))
    return f"{seeds} all gave {values.pop()!r}, and {as_trained}: the seed does not reach {whose}. {_HOW}"


def _too_few(trials: Sequence[Trial], rules: SpreadRules) -> Iterator[Caution]:
    seeds = len(first_of_each(trials, "A"))
    least = pairs_for(rules.alpha)
    if rules.expects_candidate and seeds < least:
        yield Caution(
            cause="few-seeds",
            message=(
                f"{counted(seeds, 'paired seed')} cannot reach p < {rules.alpha:.2g} in a two-sided permutation test "
                f"(p is {smallest_p(seeds):.4g} at the least); {least} can"
            ),
            advice=f"Give {least} seeds or more: seeds=[{','.join(map(str, range(1, least + 1)))}]",
        )
    elif rules.baseline is None and seeds < _LEAST_FOR_A_SPREAD:
        yield Caution(
            cause="few-seeds",
            message=f"{counted(seeds, 'seed')} can hardly tell a spread: the interval of the mean is "
            f"{'unknown' if seeds < 2 else 'many standard deviations wide'}",
            advice="Give three seeds or more, better six: seeds=[1,2,3,4,5,6]",
        )


def _alike_seeds(trials: Mapping[int, Trial]) -> list[str]:
    """Return the groups of seeds that ended in the same bits, in words."""
    by_end: dict[str, list[int]] = {}
    for seed, trial in trials.items():
        if trial.end is not None:
            by_end.setdefault(trial.end, []).append(seed)
    return [numbered("seed", seeds) for seeds in by_end.values() if len(seeds) > 1]


def _alike(trials: Sequence[Trial]) -> Iterator[Caution]:
    for arm in _arms(trials):
        own = first_of_each(trials, arm)
        same, ends = _alike_seeds(own), {trial.end for trial in own.values()}
        if same and len(ends) > 1:
            yield Caution(
                cause="seeds-alike",
                message=f"{listed(same)} ended in the same bits: they are one seed to the training, and the spread is "
                "told too small",
                advice="Look at what the script makes of its seed.",
            )
        if len(ends) > 1 and len({trial.value for trial in own.values()}) == 1:
            yield Caution(
                cause="metric-constant",
                message="every seed trained something else, and the metric is the same for all: it does not tell them "
                "apart",
                advice="Take a finer metric, such as a loss, or train and validate longer.",
            )


def _unproven(trials: Sequence[Trial], rules: SpreadRules) -> Iterator[Caution]:
    """Yield that the same seed gives other bits, where seeds do not plainly move the metric further than that."""
    runs, own = run_to_run(trials), [trial.value for trial in first_of_each(trials, "A").values()]
    if runs is None or runs.same_bits or len(own) < 2:
        return
    seeds = summarise(own, rules.confidence).sd
    if not is_wider(seeds, len(own), runs.sd, runs.launches, rules.alpha):
        yield Caution(
            cause="seed-unproven",
            message=f"the same seed gives other bits, and {counted(runs.launches, 'launch')} of it do not tell whether "
            "seeds move the metric further: that the seed reaches the training is not proven",
            advice=f"Use spread.repeats={max(4, runs.launches + 2)}, or determinism=debug.",
        )


def _idle(trials: Sequence[Trial]) -> Iterator[Caution]:
    own, other = first_of_each(trials, "A"), first_of_each(trials, "B")
    both = [seed for seed in own if seed in other]
    if both and all(own[seed].end is not None and own[seed].end == other[seed].end for seed in both):
        yield Caution(
            cause="candidate-idle",
            message="with every seed the candidate ended in the bits of the command without it: it changes nothing",
            advice="Look at whether its overrides reach the training.",
        )
