"""The pass under way when a training was stopped, where both launches deliver the same batches of it.

A script that goes on often takes the rest of the epoch by other means: a sampler that skips, a subset, another loader.
What is delivered decides then, not how it was said: the loader's name, its settings, the indices.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ddp_repro.judge.ignored import rows_kept
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.rows import NO_ROWS, Index, in_phases
from ddp_repro.trace.reader import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What one launch delivered of the pass: the rows of the batches' content, and those that say how."""

    loader: str
    content: Index
    said: Index


def is_fact(name: str) -> bool:
    """Return whether a name of ``data`` is a setting of a loader, neither an index nor a batch."""
    parts = split_name(name)
    return parts is not None and parts[1] != "index" and not parts[1].startswith("batch")


def delivering(trace: Trace, step: int) -> Iterator[str]:
    """Yield the loaders that deliver from ``step`` on, a batch at a time."""
    for row in np.flatnonzero((trace.step >= step) & in_phases(trace, ("data",))):
        name = trace.names[trace.name[row]]
        parts = split_name(name)
        if parts is not None and not is_fact(name):
            yield parts[0]


def by_content(a: Trace, b: Trace, begins: int, before: int | None) -> tuple[Trace, Trace]:
    """Return both traces without how the pass under way was said, where its batches are the same; else as they are.

    Only batches of steps below ``before`` are looked at, where that is given.
    """
    told = [_delivered(trace, begins, before) for trace in (a, b)]
    one, other = told
    if one is None or other is None or not len(one.content) or _content(a, one) != _content(b, other):
        return a, b
    b = _renamed(b, other, one.loader)
    return _without(a, one.said), _without(b, other.said)


def _delivered(trace: Trace, begins: int, before: int | None) -> Delivered | None:
    """Return what the loader that delivers first from ``begins`` on delivers, until it or another one begins a pass."""
    loader = next(delivering(trace, begins), None)
    if loader is None:
        return None
    now = trace.step >= begins
    if before is not None:
        now &= trace.step < before
    rows = np.flatnonzero(now & in_phases(trace, ("data",)))
    parts = [split_name(trace.names[trace.name[row]]) or ("", "") for row in rows]
    facts = np.array([is_fact(trace.names[trace.name[row]]) for row in rows])
    first = next((place for place, (own, _) in enumerate(parts) if own == loader and not facts[place]), None)
    if first is None:
        return None
    others = np.flatnonzero(facts[first:])
    end = first + int(others[0]) if len(others) else len(rows)
    mine = np.array([own == loader for own, _ in parts[:end]])
    batch = np.array([what.startswith("batch") for _, what in parts[:end]])
    return Delivered(loader=loader, content=rows[:end][mine & batch], said=rows[:end][mine & ~batch])


def _content(trace: Trace, told: Delivered) -> list[tuple[str, bytes]]:
    names = (trace.names[trace.name[row]].removeprefix(told.loader) for row in told.content)
    return [(name, trace.digest[row].tobytes()) for name, row in zip(names, told.content, strict=True)]


def _renamed(trace: Trace, told: Delivered, loader: str) -> Trace:
    if told.loader == loader:
        return trace
    names, name = list(trace.names), trace.name.copy()
    for row in told.content:
        new = loader + trace.names[trace.name[row]].removeprefix(told.loader)
        if new not in names:
            names.append(new)
        name[row] = names.index(new)
    return replace(trace, names=names, name=name)


def _without(trace: Trace, rows: Index) -> Trace:
    kept = np.ones(len(trace), np.bool_)
    kept[rows] = False
    return rows_kept(trace, kept)


def told_again(a: Trace, b: Trace, begins: int) -> Index:
    """Return the rows of the uninterrupted launch that a resumed one tells again at its first step.

    That is the whole pass where its batches were all fetched as it began (``list(loader)``), else its facts.
    """
    if not _begins_pass_alone(a, b, begins):
        return NO_ROWS
    fetched = [any(not is_fact(name) for name in _loader_names_at(trace, begins)) for trace in (a, b)]
    return _last_pass(a, begins) if fetched == [False, True] else _last_before(a, begins)


def _begins_pass_alone(a: Trace, b: Trace, begins: int) -> bool:
    """Return whether the resumed launch says at its first step what a pass begins with, and the other does not."""
    return bool(_facts_at(b, begins)) and not _facts_at(a, begins)


def _facts_at(trace: Trace, step: int) -> list[int]:
    rows = np.flatnonzero((trace.step == step) & in_phases(trace, ("data",)))
    return [int(row) for row in rows if is_fact(trace.names[trace.name[row]])]


def _loader_names_at(trace: Trace, step: int) -> list[str]:
    rows = np.flatnonzero((trace.step == step) & in_phases(trace, ("data",)))
    return [trace.names[trace.name[row]] for row in rows]


def _last_pass(trace: Trace, step: int) -> Index:
    """Return the rows of the last pass that delivered before ``step``, from its first fact on."""
    rows = np.flatnonzero((trace.step < step) & in_phases(trace, ("data",)))
    parts = [split_name(trace.names[trace.name[row]]) or ("", "") for row in rows]
    delivered = [loader for loader, told in parts if told == "index" or told.startswith("batch")]
    if not delivered:
        return NO_ROWS
    mine = [(row, told) for row, (loader, told) in zip(rows, parts, strict=True) if loader == delivered[-1]]
    first = max((place for place, (_, told) in enumerate(mine) if told == "pass"), default=0)
    return np.array([row for row, _ in mine[first:]], np.int64)


def _last_before(trace: Trace, step: int) -> Index:
    """Return the last row before ``step`` of each fact of the loader that delivers the first batch from ``step`` on."""
    loader = next(delivering(trace, step), None)
    found: dict[int, int] = {}
    for row in np.flatnonzero((trace.step < step) & in_phases(trace, ("data",))):
        name = trace.names[trace.name[row]]
        parts = split_name(name)
        if parts is not None and parts[0] == loader and is_fact(name):
            found[int(trace.name[row])] = int(row)
    return np.array(sorted(found.values()), np.int64)
