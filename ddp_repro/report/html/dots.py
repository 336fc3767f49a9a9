"""Numbers as dots on one axis, in rows, each with its mean and interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 1000.0
_MARGIN: Final = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A row before it is drawn: numbers, with an interval and a mean where there are any."""

    label: str
    values: Sequence[float] = ()
    interval: tuple[float, float] | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row as it is drawn, in units of a picture ``WIDTH`` wide; ``told`` says it in words."""

    label: str
    kind: str
    dots: list[tuple[str, str]]
    interval: tuple[str, str] | None
    mean: str | None
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """A picture of rows on one axis; ``at`` is a place on it that all are held to."""

    title: str
    caption: str
    rows: list[Row]
    at: str | None
    ticks: list[str]


def dots(title: str, caption: str, given: Sequence[Given], *, at: float | None = None) -> Dots | None:
    """Return the picture of all rows, on an axis that holds every finite number; ``None`` where there is none."""
    rows = [row for row in given if row.values or row.interval is not None]
    numbers = [number for row in rows for number in (*row.values, *(row.interval or ())) if math.isfinite(number)]
    if not numbers:
        return None
    numbers += [] if at is None else [at]
    low, high = min(numbers), max(numbers)
    room = (high - low) * _MARGIN or abs(high) * _MARGIN or 1.0
    axis = _Axis(low=low - room, high=high + room)
    return Dots(
        title=title,
        caption=caption,
        rows=[_row(row, axis, number) for number, row in enumerate(rows)],
        at=None if at is None else axis(at),
        ticks=[f"{tick:.5g}" for tick in (axis.low, (axis.low + axis.high) / 2, axis.high)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    low: float
    high: float

    def __call__(self, number: float) -> str:
        return f"{min(max((number - self.low) / (self.high - self.low), 0.0), 1.0) * WIDTH:.1f}"


def _row(row: Given, axis: _Axis, number: int) -> Row:
    finite = [value for value in row.values if math.isfinite(value)]
    told = [row.label, f"{len(finite)} numbers"] if finite else [row.label]
    told += [f"mean {row.mean:.6g}"] if row.mean is not None else []
    told += [f"interval {row.interval[0]:.6g} to {row.interval[1]:.6g}"] if row.interval else []
    return Row(
        label=row.label,
        kind=f"l{number % 8}",
        dots=[(axis(value), f"{value!r}") for value in finite],
        interval=None if row.interval is None else (axis(row.interval[0]), axis(row.interval[1])),
        mean=None if row.mean is None else axis(row.mean),
        told=", ".join(told),
    )
