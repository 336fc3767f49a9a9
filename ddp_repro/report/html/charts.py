"""The pictures over steps: how far a difference has spread, how far losses are apart, and the losses themselves."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ddp_repro.judge.wording import counted, numbered
from ddp_repro.report.html.axis import Axis
from ddp_repro.report.html.curves import Chart, Line, frame, thinned
from ddp_repro.report.html.gathering import Gathered
from ddp_repro.report.html.places import CALLED
from ddp_repro.report.html.seen import Floats, Losses

_POINTS: Final = 100_000
_CURVES: Final = 640
_LEAST: Final = 40
_MOST: Final = 1000


def growth(gathered: Gathered, steps: Axis) -> Chart:
    """Return, for each phase that differs anywhere, which part of its observations differs, step by step."""
    rows, differing = gathered.rows, gathered.differing
    places = [place for place in sorted(CALLED) if differing[:, place].any()]
    with np.errstate(all="ignore"):
        shares = {place: differing[:, place] / rows[:, place] for place in places}
    reduced = {place: _largest(share, steps) * 100 for place, share in shares.items()}
    at = steps.starts - 1
    box = frame([at], [np.array([100.0])], low=0.0)
    lines = [
        Line(label=CALLED[place], kind=f"p{place}", pieces=box.pieces(at[shown], share[shown]))
        for place, share in reduced.items()
        for shown in [np.isfinite(share)]
    ]
    notes = [f"Of each {counted(steps.width, 'step')} the largest part is drawn."] if steps.width > 1 else []
    return Chart(
        name="growth",
        title="part of the observations that differ, in percent, by phase and step",
        lines=lines,
        heights=["100 %", "50 %", "0 %"],
        steps=[box.first, box.last],
        legend=[(f"p{place}", CALLED[place]) for place in places],
        scale="linear",
        notes=notes,
    )


def _largest(values: Floats, steps: Axis) -> Floats:
    """Return the largest number of each column, NaN where there is none."""
    padded = np.full(steps.last + 2, np.nan)
    padded[: len(values)] = values[: len(padded)]
    return np.asarray(np.fmax.reduceat(padded, steps.starts))


def distance(gathered: Gathered, steps: Axis) -> Chart | None:
    """Return how far losses are apart, or ``None`` where no two losses differ by a number."""
    largest = _largest(gathered.ulps, steps)
    shown = np.isfinite(largest)
    if not shown.any():
        return None
    at, values = (steps.starts - 1)[shown], largest[shown]
    box = frame([steps.starts - 1], [values])
    notes = [f"Of each {counted(steps.width, 'step')} the largest is drawn."] if steps.width > 1 else []
    return Chart(
        name="ulps",
        title="largest distance of two losses, in ULP, over all ranks",
        lines=[Line(label="loss", kind="single", pieces=box.pieces(at, values))],
        heights=box.heights(),
        steps=[box.first, box.last],
        legend=[],
        scale=_scale(is_log=box.is_log),
        notes=notes,
    )


def losses(seen: Sequence[Losses]) -> Chart | None:
    """Return the losses of all launches and ranks, or ``None`` where none was recorded."""
    seen = sorted((one for one in seen if len(one.step)), key=lambda one: (one.launch, one.rank))
    if not seen:
        return None
    drawn, left = _drawn(seen)
    at_most = min(_MOST, max(_LEAST, _POINTS // len(drawn)))
    points = [thinned(one.step, one.value, at_most) for one in drawn]
    box = frame([step for step, _ in points], [value for _, value in points])
    numbers = sorted({one.launch for one in drawn})
    lines = [
        Line(
            label=f"launch {one.launch}, rank {one.rank}",
            kind=f"l{numbers.index(one.launch) % 8}",
            pieces=box.pieces(step, value),
            group=str(one.launch),
        )
        for one, (step, value) in zip(drawn, points, strict=True)
    ]
    return Chart(
        name="losses",
        title="loss of each launch and rank",
        lines=lines,
        heights=box.heights(),
        steps=[box.first, box.last],
        legend=[(f"l{at % 8}", f"launch {number}") for at, number in enumerate(numbers)],
        scale=_scale(is_log=box.is_log),
        notes=[*left, *_thinning(drawn, at_most), *_missing(seen)],
    )


def _scale(*, is_log: bool) -> str:
    return "logarithmic" if is_log else "linear"


def _drawn(seen: Sequence[Losses]) -> tuple[list[Losses], list[str]]:
    """Return the curves that are drawn, and what is left out where there are too many to see."""
    ranks = sorted({one.rank for one in seen})
    launches = len({one.launch for one in seen})
    every = max(1, -(-len(ranks) * launches // _CURVES))
    if every == 1:
        return list(seen), []
    chosen = ranks[::every]
    told = f"Of {len(ranks):,} ranks every {every}th is drawn ({numbered('rank', chosen)})."
    return [one for one in seen if one.rank in chosen], [told]


def _thinning(drawn: Sequence[Losses], at_most: int) -> list[str]:
    longest = max(len(one.step) for one in drawn)
    if longest <= at_most:
        return []
    together = -(-longest // max(at_most // 2, 1))
    return [f"Of each {together} losses of a curve the smallest and the largest are drawn."]


def _missing(seen: Sequence[Losses]) -> list[str]:
    count = sum(int(np.count_nonzero(~np.isfinite(one.value))) for one in seen)
    if not count:
        return []
    is_one = count == 1
    return [f"{count:,} {'loss is' if is_one else 'losses are'} infinite or not a number, and not drawn."]
