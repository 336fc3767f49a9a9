"""The map of ranks and steps as the page draws it: a letter for each cell, and what a cell that differs tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ddp_repro.judge.wording import counted
from ddp_repro.report.html.axis import COLUMNS, ROWS, Axis, axis
from ddp_repro.report.html.gathering import OfRank
from ddp_repro.report.html.places import CALLED
from ddp_repro.report.html.seen import EQUAL, NOT_COMPARED, Ints

_SIGNS: Final = {NOT_COMPARED: ".", EQUAL: "="}
_LETTERS: Final = {place: chr(ord("a") + number) for number, place in enumerate(sorted(CALLED))}
_LONGEST: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The map: ``data`` is what the page's script reads, ``places`` those that occur, ``cut`` tells what was joined.

    ``has_gaps``: there are cells in which nothing was compared.
    """

    data: dict[str, Any]
    places: list[int]
    cut: str
    steps: Axis
    has_gaps: bool


@dataclass(slots=True, kw_only=True)
class _Row:
    """One row: ``cells`` holds, for each cell that differs, step, rank, name, observations, and steps."""

    label: str
    signs: str
    cells: list[list[int]]


@dataclass(slots=True, kw_only=True)
class _Names:
    """Names by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
        return self.numbers.setdefault(shown, len(self.numbers))


def grid(ranks: Sequence[OfRank]) -> Grid:
    """Return the map of all ranks; a cell that holds several steps or ranks shows the first difference in it."""
    last = max(len(one.first) for one in ranks) - 2
    seen = [np.flatnonzero(one.first != NOT_COMPARED) for one in ranks]
    first = min((int(rows[0]) for rows in seen if len(rows)), default=1) - 1
    steps = axis(first, max(last, 0), COLUMNS)
    group = max(1, -(-len(ranks) // ROWS))
    names, used = _Names(), set[int]()
    rows = [_row(ranks[at : at + group], steps, names, used) for at in range(0, len(ranks), group)]
    data = {
        "spans": steps.spans,
        "letters": {_LETTERS[place]: {"place": place, "called": CALLED[place]} for place in sorted(used)},
        "names": list(names.numbers),
        "rows": [{"label": row.label, "signs": row.signs, "cells": row.cells} for row in rows],
    }
    has_gaps = any(_SIGNS[NOT_COMPARED] in row.signs for row in rows)
    return Grid(data=data, places=sorted(used), cut=_cut(steps, group), steps=steps, has_gaps=has_gaps)


def _cut(steps: Axis, group: int) -> str:
    joined = [counted(steps.width, "step")] if steps.width > 1 else []
    joined += [counted(group, "rank")] if group > 1 else []
    if not joined:
        return ""
    return f"A cell stands for up to {' and '.join(joined)}; it shows the first difference in them, exactly."


def _row(ranks: Sequence[OfRank], steps: Axis, names: _Names, used: set[int]) -> _Row:
    columns = len(steps.spans)
    signs = [_SIGNS[NOT_COMPARED]] * columns
    best: dict[int, list[int]] = {}
    for one in ranks:
        states, first, count = _columns(one.first, steps)
        for column in range(columns):
            state = int(states[column])
            if state < 0:
                if state == EQUAL and column not in best:
                    signs[column] = _SIGNS[EQUAL]
                continue
            step = int(first[column])
            name = names.number(one.name_at(step))
            told = [step, one.rank, name, int(one.count[step + 1]), int(count[column])]
            if column not in best or step < best[column][0]:
                best[column] = told
                signs[column] = _LETTERS[state]
                used.add(state)
    label = str(ranks[0].rank) if len(ranks) == 1 else f"{ranks[0].rank} to {ranks[-1].rank}"
    return _Row(label=label, signs="".join(signs), cells=[best[column] for column in sorted(best)])


def _columns(first: Ints, steps: Axis) -> tuple[Ints, Ints, Ints]:
    """Return for each column its state, the first step that differs, and how many do."""
    length = steps.last + 2
    padded = np.full(length, NOT_COMPARED, np.int64)
    padded[: len(first)] = first
    differs = padded >= 0
    at = np.minimum.reduceat(np.where(differs, np.arange(length), length), steps.starts)
    count = np.add.reduceat(differs.astype(np.int64), steps.starts)
    states = np.where(at < length, padded[np.minimum(at, length - 1)], np.maximum.reduceat(padded, steps.starts))
    return states, at - 1, count
