"""Numbers over steps as lines of a picture: few enough points to draw, with every peak kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ddp_repro.report.html.seen import Floats, Ints

WIDTH: Final = 1000
HEIGHT: Final = 240
_RATIO: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: ``points`` as SVG writes them, in pieces where numbers are missing; ``kind`` is its class in CSS."""

    label: str
    kind: str
    pieces: list[str]
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over steps, and the numbers at the axes: ``heights`` from top to bottom."""

    name: str
    title: str
    lines: list[Line]
    heights: list[str]
    steps: list[int]
    legend: list[tuple[str, str]]
    scale: str
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What part of the world a picture shows; logarithmic where that shows more."""

    first: int
    last: int
    low: float
    high: float
    is_log: bool

    def pieces(self, step: Ints, value: Floats) -> list[str]:
        """Return the points of a line, broken where a number is not finite or cannot be shown."""
        shown = np.isfinite(value) & (value > 0) if self.is_log else np.isfinite(value)
        with np.errstate(all="ignore"):
            height = (self._scaled(value) - self._scaled(self.low)) / self._range * (HEIGHT - 8)
        x = (step - self.first) / max(self.last - self.first, 1) * WIDTH
        breaks = np.flatnonzero(np.diff(shown.astype(np.int8))) + 1
        made = [
            " ".join(f"{x[at]:.0f},{HEIGHT - 4 - height[at]:.1f}" for at in part)
            for part in np.split(np.arange(len(step)), breaks)
            if len(part) and shown[part[0]]
        ]
        return [piece if " " in piece else f"{piece} {piece}" for piece in made]

    def heights(self) -> list[str]:
        """Return the numbers at the top, in the middle and at the bottom."""
        middle = math.sqrt(self.low * self.high) if self.is_log else (self.low + self.high) / 2
        return [f"{number:.4g}" for number in (self.high, middle, self.low)]

    def _scaled(self, value: Floats | float) -> Floats:
        return np.log10(value) if self.is_log else np.asarray(value, np.float64)

    @property
    def _range(self) -> float:
        return float(self._scaled(self.high) - self._scaled(self.low)) or 1.0


def frame(steps: Sequence[Ints], values: Sequence[Floats], *, low: float | None = None) -> Frame:
    """Return the frame that holds all finite numbers; from ``low``, where that is given."""
    finite = [value[np.isfinite(value)] for value in values]
    lows = [float(value.min()) for value in finite if len(value)]
    highs = [float(value.max()) for value in finite if len(value)]
    bottom, top = min(lows, default=0.0), max(highs, default=1.0)
    is_log = low is None and bottom > 0 and top / bottom > _RATIO
    return Frame(
        first=min((int(step.min()) for step in steps if len(step)), default=0),
        last=max((int(step.max()) for step in steps if len(step)), default=0),
        low=bottom if low is None else low,
        high=top,
        is_log=is_log,
    )


def thinned(step: Ints, value: Floats, at_most: int) -> tuple[Ints, Floats]:
    """Return the points, or of each of ``at_most / 2`` equal parts its smallest and its largest number."""
    if len(step) <= at_most:
        return step, value
    parts = max(at_most // 2, 1)
    width = -(-len(step) // parts)
    padded = np.append(value, np.full(-len(value) % width, np.nan)).reshape(-1, width)
    bad = ~np.isfinite(padded)
    begins = np.arange(len(padded)) * width
    low = begins + np.where(bad, np.inf, padded).argmin(axis=1)
    high = begins + np.where(bad, -np.inf, padded).argmax(axis=1)
    kept = np.unique(np.concatenate([low, high, [0, len(step) - 1]]))
    return step[kept], value[kept]
