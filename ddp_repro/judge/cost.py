"""What one thing costs more than another: steps and memory of launches that took turns."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ddp_repro.judge.ratios import Ratio, ratio_of
from ddp_repro.judge.spread import Caution
from ddp_repro.judge.statistics import pairs_for
from ddp_repro.judge.wording import counted

FEWEST_STEPS: Final = 5
_STEPS_WANTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One launch: ``seconds`` is its median step (mean of the ranks'), memory the largest of its ranks', in bytes."""

    launch: int
    arm: str
    repeat: int
    seconds: float
    steps: int
    rss_bytes: int | None = None
    gpu_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What an arm came to: its median launch, and the ratio to the arm that it is held to (``None`` for the first)."""

    arm: str
    relative_to: str
    seconds: float
    ratio: Ratio | None
    rss_bytes: float | None
    gpu_bytes: float | None
    rss_range: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """All arms in order, the first being that to which all are held in the end.

    ``noise`` is how far its own launches are apart, as a share of their mean. ``problems`` bar every conclusion.
    """

    lines: tuple[Line, ...]
    noise: float
    problems: tuple[str, ...]
    cautions: tuple[Caution, ...]


def launch_timed(
    launch: int,
    arm: str,
    repeat: int,
    ranks: Sequence[Sequence[float]],
    memory: Sequence[tuple[int | None, int | None]],
) -> Timed:
    """Return what a launch came to, from the seconds of each rank's steps after warming up and its memory."""
    return Timed(
        launch=launch,
        arm=arm,
        repeat=repeat,
        seconds=statistics.fmean(statistics.median(steps) for steps in ranks),
        steps=min(len(steps) for steps in ranks),
        rss_bytes=max((rss for rss, _ in memory if rss is not None), default=None),
        gpu_bytes=max((gpu for _, gpu in memory if gpu is not None), default=None),
    )


def judge_cost(
    timed: Sequence[Timed], arms: Sequence[tuple[str, str]], confidence: float, problems: Sequence[str]
) -> Cost:
    """Return what the arms (name, name of the arm that it is held to) came to; repeats that all arms have count."""
    by_arm = {name: {one.repeat: one for one in timed if one.arm == name} for name, _ in arms}
    whole = sorted(set.intersection(*(set(found) for found in by_arm.values()))) if by_arm else []
    if len(whole) < 2:
        told = [*problems] or ["fewer than two launches of each were timed"]
        return Cost(lines=(), noise=0.0, problems=tuple(told), cautions=())
    kept = {name: [by_arm[name][repeat] for repeat in whole] for name, _ in arms}
    seconds = {name: [one.seconds for one in found] for name, found in kept.items()}
    lines = [
        _line(name, relative_to, kept[name], ratio_of(seconds[name], seconds[relative_to], confidence))
        for name, relative_to in arms
    ]
    own = seconds[arms[0][0]]
    return Cost(
        lines=tuple(lines),
        noise=statistics.stdev(own) / statistics.fmean(own),
        problems=tuple(problems),
        cautions=tuple(
            _cautions(len(whole), pairs_for(1 - confidence), min(one.steps for found in kept.values() for one in found))
        ),
    )


def _line(name: str, relative_to: str, launches: Sequence[Timed], ratio: Ratio) -> Line:
    resident = [one.rss_bytes for one in launches if one.rss_bytes is not None]
    on_gpu = [one.gpu_bytes for one in launches if one.gpu_bytes is not None]
    return Line(
        arm=name,
        relative_to=relative_to,
        seconds=statistics.median(one.seconds for one in launches),
        ratio=None if name == relative_to else ratio,
        rss_bytes=statistics.median(resident) if resident else None,
        gpu_bytes=statistics.median(on_gpu) if on_gpu else None,
        rss_range=(min(resident), max(resident)) if resident else None,
    )


def _cautions(repeats: int, enough: int, steps: int) -> list[Caution]:
    found = []
    if repeats < enough:
        found.append(
            Caution(
                cause="few-launches",
                message=(
                    f"with {counted(repeats, 'launch')} of each the interval covers too little: the largest and the "
                    f"smallest ratio hold the true one between them in {1 - 2.0 ** (1 - repeats):.0%} of cases at "
                    "most, so no cost is told as shown"
                ),
                advice=f"Use cost.repeats={enough} or more.",
            )
        )
    if steps < _STEPS_WANTED:
        found.append(
            Caution(
                cause="few-steps",
                message=f"only {counted(steps, 'step')} of a launch were timed",
                advice=f"Let it train longer: {_STEPS_WANTED} steps after warming up, or more.",
            )
        )
    return found
