"""Goes over all ranks of a run and gathers what its page shows."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

import numpy as np

from ddp_repro.report.html.places import COUNT
from ddp_repro.report.html.seen import Differences, Floats, Ints, Look, Losses, Seen, look_at
from ddp_repro.report.html.source import Source

_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfRank:
    """Where one rank differs, by step: see ``Differences``; ``count`` are the differing observations of each step."""

    rank: int
    first: Ints
    name: Ints
    names: list[str]
    count: Ints
    chain: dict[int, list[str]]

    @property
    def first_step(self) -> int | None:
        """Return the first step that differs, -1 before the first; ``None`` where none does."""
        differs = np.flatnonzero(self.first >= 0)
        return int(differs[0]) - 1 if len(differs) else None

    def name_at(self, step: int) -> str:
        """Return the name of what differs first in ``step``."""
        return self.names[int(self.name[step + 1])]


@dataclass(slots=True, kw_only=True, eq=False)
class Gathered:
    """All that was seen: ``rows`` and ``differing`` count observations by step and place, over all ranks."""

    ranks: list[OfRank] = field(default_factory=list)
    losses: list[Losses] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: np.zeros((0, COUNT), np.int64))
    differing: Ints = field(default_factory=lambda: np.zeros((0, COUNT), np.int64))
    ulps: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def first_step(self) -> int | None:
        """Return the first step in which any rank differs."""
        steps = [one.first_step for one in self.ranks]
        return min((step for step in steps if step is not None), default=None)

    def add(self, seen: Seen) -> None:
        """Take in what one rank shows."""
        self.losses += seen.losses
        self.unread += seen.unread
        if seen.differences is not None:
            self._add(seen.differences)

    def _add(self, one: Differences) -> None:
        self.rows, self.differing = _sum(self.rows, one.rows), _sum(self.differing, one.differing)
        steps = max(len(self.ulps), len(one.ulps))
        both = [np.pad(ulps, (0, steps - len(ulps)), constant_values=np.nan) for ulps in (self.ulps, one.ulps)]
        self.ulps = np.fmax(*both)
        self.ranks.append(
            OfRank(
                rank=one.rank,
                first=one.first,
                name=one.name,
                names=one.names,
                count=one.differing.sum(axis=1),
                chain=one.chain,
            )
        )


def gather(source: Source, look: Look) -> Gathered:
    """Read every rank's traces, a few at a time."""
    gathered = Gathered()
    ranks = sorted({rank for launch in look.launches for rank in source.ranks(launch)})
    for seen in _looked(ranks, source, look):
        gathered.add(seen)
    return gathered


def _looked(ranks: list[int], source: Source, look: Look) -> Iterator[Seen]:
    """Look at each rank in turn; reading many small batches is Python's work, so that takes processes."""
    looking = partial(look_at, source=source, look=look)
    readers = min(source.readers(), len(ranks))
    at_once = readers or min(_THREADS, os.cpu_count() or 1, len(ranks))
    if at_once < 2:
        yield from map(looking, ranks)
        return
    with _readers(readers) if readers else ThreadPoolExecutor(at_once) as pool:
        for group in _grouped(ranks, 2 * at_once):  # bounds what waits to be taken in
            yield from pool.map(looking, group)


def _readers(count: int) -> Executor:
    return ProcessPoolExecutor(count, mp_context=get_context("forkserver"))


def _grouped(ranks: list[int], size: int) -> Iterable[list[int]]:
    return (ranks[at : at + size] for at in range(0, len(ranks), size))


def _sum(a: Ints, b: Ints) -> Ints:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total
