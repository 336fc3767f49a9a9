"""How far seeds alone move a metric, and whether a candidate moves it further: judged from one number a launch."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from ddp_repro.errors import ExitCode
from ddp_repro.judge.power import detectable, seeds_needed
from ddp_repro.judge.statistics import (
    Interval,
    PairedComparison,
    Summary,
    compare_paired,
    pairs_for,
    prediction,
    summarise,
)

Arm = Literal["A", "B"]
Better = Literal["higher", "lower"]
LEAST_FOR_A_BASELINE: Final = 3


class Conclusion(StrEnum):
    """What a run of `spread` ends with; each stands for one exit code."""

    MEASURED = "MEASURED"
    WITHIN = "WITHIN"
    OUTSIDE = "OUTSIDE"
    IMPROVED = "IMPROVED"
    WORSE = "WORSE"
    NOT_SHOWN = "NOT_SHOWN"
    NOT_JUDGED = "NOT_JUDGED"

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 for what was shown as it was asked for, 1 for the opposite that was shown, 2 for nothing shown."""
        if self in (Conclusion.OUTSIDE, Conclusion.WORSE):
            return ExitCode.DIVERGED
        shown = (Conclusion.MEASURED, Conclusion.WITHIN, Conclusion.IMPROVED)
        return ExitCode.REPRODUCIBLE if self in shown else ExitCode.NOT_JUDGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One launch: which arm (A as the command has it, B the candidate) with which seed gave which metric.

    ``end`` digests what was trained (``None`` where that is unknown): equal digests are equal bits.
    """

    launch: int
    arm: Arm
    seed: int
    value: float
    end: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRules:
    """By what trials are judged: ``1 - confidence`` is the share of false claims that is allowed.

    ``power`` is how often an effect is to be seen that counts as one that could have been seen. ``baseline`` holds the
    metric of an earlier run, seed by seed, that this one is held to.
    """

    confidence: float = 0.95
    power: float = 0.8
    better: Better | None = None
    baseline: Sequence[float] | None = None
    expects_candidate: bool = False

    @property
    def alpha(self) -> float:
        """Return the share of false claims that is allowed, to both sides together."""
        return 1 - self.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToRun:
    """How far launches with one and the same seed are apart: ``sd`` over ``launches`` of ``seed``."""

    seed: int
    launches: int
    sd: float
    values: tuple[float, ...]
    same_bits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The candidate against the command: pairs with equal seeds.

    ``gain`` is the difference with its sign turned so that more is better. ``detectable`` is the smallest true
    difference that so many seeds show with the power asked for (``None``: none at all), ``needed`` the number of seeds
    that would show the one that was measured (``None``: too many to count, or none was measured).
    """

    comparison: PairedComparison
    gain: float
    detectable: float | None
    needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """Something that weakens what was measured."""

    cause: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What trials came to; parts for which there were too few are ``None``. ``problems`` bar every conclusion."""

    conclusion: Conclusion
    own: Summary | None
    candidate: Summary | None
    runs: RunToRun | None
    paired: Paired | None
    expected: Interval | None
    problems: tuple[str, ...]
    cautions: tuple[Caution, ...]


def judge_spread(trials: Sequence[Trial], rules: SpreadRules, problems: Sequence[str], cautions: Sequence[Caution]) -> (
    Spread
):  # fmt: skip
    """Return what the trials come to under the rules; what was found before (and is told here) may bar a conclusion."""
    own, other = first_of_each(trials, "A"), first_of_each(trials, "B")
    paired = _paired(own, other, rules) if rules.expects_candidate else None
    expected = None
    if rules.baseline is not None and len(rules.baseline) >= LEAST_FOR_A_BASELINE and own:
        expected = prediction(rules.baseline, len(own), rules.confidence)
    summary = _summary(own, rules)
    return Spread(
        conclusion=Conclusion.NOT_JUDGED if problems else _conclusion(own, summary, paired, expected, rules),
        own=summary,
        candidate=_summary(other, rules),
        runs=run_to_run(trials),
        paired=paired,
        expected=expected,
        problems=tuple(problems),
        cautions=tuple(cautions),
    )


def first_of_each(trials: Sequence[Trial], arm: Arm) -> dict[int, Trial]:
    """Return by seed the first trial of an arm: further ones with the same seed are repetitions."""
    found: dict[int, Trial] = {}
    for trial in trials:
        if trial.arm == arm:
            found.setdefault(trial.seed, trial)
    return found


def _conclusion(
    own: dict[int, Trial],
    summary: Summary | None,
    paired: Paired | None,
    expected: Interval | None,
    rules: SpreadRules,
) -> Conclusion:
    if rules.expects_candidate:
        return Conclusion.NOT_JUDGED if paired is None else _claim(paired, rules.alpha)
    if rules.baseline is not None:
        if expected is None:
            return Conclusion.NOT_JUDGED
        mean = sum(trial.value for trial in own.values()) / len(own)
        return Conclusion.WITHIN if expected.holds(mean) else Conclusion.OUTSIDE
    return Conclusion.MEASURED if summary is not None else Conclusion.NOT_JUDGED


def _claim(paired: Paired, alpha: float) -> Conclusion:
    if paired.comparison.p_permutation > alpha or paired.gain == 0:
        return Conclusion.NOT_SHOWN
    return Conclusion.IMPROVED if paired.gain > 0 else Conclusion.WORSE


def _summary(trials: dict[int, Trial], rules: SpreadRules) -> Summary | None:
    values = [trial.value for trial in trials.values()]
    return summarise(values, rules.confidence) if len(values) > 1 else None


def _paired(own: dict[int, Trial], other: dict[int, Trial], rules: SpreadRules) -> Paired | None:
    seeds = [seed for seed in own if seed in other]
    if len(seeds) < 2:
        return None
    a, b = [own[seed].value for seed in seeds], [other[seed].value for seed in seeds]
    found = compare_paired(a, b, rules.confidence)
    least = pairs_for(rules.alpha)
    needed = seeds_needed(found.difference, found.sd, rules.alpha, rules.power) if found.difference else None
    return Paired(
        comparison=found,
        gain=-found.difference if rules.better == "lower" else found.difference,
        detectable=detectable(found.sd, found.n, rules.alpha, rules.power) if found.n >= least else None,
        needed=None if needed is None else max(needed, least),
    )


def run_to_run(trials: Sequence[Trial]) -> RunToRun | None:
    """Return how far the launches of the seed that was launched most often are apart."""
    again: dict[int, list[Trial]] = {}
    for trial in trials:
        if trial.arm == "A":
            again.setdefault(trial.seed, []).append(trial)
    repeated = max(again.values(), key=len, default=[])
    if len(repeated) < 2:
        return None
    ends = {trial.end for trial in repeated}
    return RunToRun(
        seed=repeated[0].seed,
        launches=len(repeated),
        sd=summarise([trial.value for trial in repeated], 0.95).sd,
        values=tuple(trial.value for trial in repeated),
        same_bits=len(ends) == 1 and None not in ends,
    )
