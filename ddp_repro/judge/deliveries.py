"""Which rows of a trace belong to which pass over a loader, and the batches that a pass delivered by their content."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from ddp_repro.judge.passes import Pass, loader_of_rows, split_name
from ddp_repro.judge.rows import Index
from ddp_repro.trace.reader import Trace

_DELIVERED = ("data", "rng")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One delivered batch: ``content`` is a digest over all it holds, ``worker`` who fetched it (empty: unknown)."""

    row: int
    step: int
    content: bytes
    worker: str


def owners(trace: Trace, passes: Sequence[Pass]) -> Index:
    """Return for each row the place in ``passes`` of the pass whose loader observed it, -1 for none.

    Those are its facts, indices, batches and workers' states, and the main process's states at its batches. The rows of
    a batch follow each other without anything between, so a state belongs to the loader named next.
    """
    loaders, of_row = loader_of_rows(trace)
    of_row = _with_states(trace, of_row)
    owner = np.full(len(trace), -1)
    for number, loader in enumerate(loaders):
        mine = sorted((one.start, place) for place, one in enumerate(passes) if one.loader == loader)
        rows = np.flatnonzero(of_row == number)
        at = np.searchsorted([start for start, _ in mine], rows, side="right") - 1
        places = np.array([-1, *(place for _, place in mine)])
        owner[rows] = places[at + 1]
    return owner


def _with_states(trace: Trace, of_row: Index) -> Index:
    """Return the loader of each row with that of the main process's states filled in."""
    delivered = np.isin(trace.phase, [code for code, phase in enumerate(trace.phases) if phase in _DELIVERED])
    rows = np.arange(len(trace))
    named = of_row >= 0
    following = _nearest(np.where(named, rows, len(trace)))
    broken = _nearest(np.where(delivered, len(trace), rows))
    preceding = np.maximum.accumulate(np.where(named, rows, -1)) if len(rows) else rows
    broken_before = np.maximum.accumulate(np.where(delivered, -1, rows)) if len(rows) else rows
    filled = np.where(preceding > broken_before, of_row[preceding], -1)
    filled = np.where(following < broken, of_row[np.minimum(following, len(trace) - 1)], filled)
    return np.where(delivered & ~named, filled, of_row)


def _nearest(rows: Index) -> Index:
    """Return for each place the smallest of the numbers from there on."""
    return np.minimum.accumulate(rows[::-1])[::-1]


def batches_of(trace: Trace, passes: Sequence[Pass]) -> list[list[Batch]]:
    """Return for each pass its batches in order: a run of content rows that nothing interrupts is one."""
    owner = owners(trace, passes)
    data = trace.phases.index("data") if "data" in trace.phases else -1
    suffixes = [(split_name(name) or ("", ""))[1] for name in trace.names]
    content = np.array([suffix.startswith("batch") for suffix in suffixes], np.bool_)
    workers = [suffix.partition(".")[0] if suffix.startswith("worker") else "" for suffix in suffixes]
    states = np.flatnonzero(np.array([bool(worker) for worker in workers], np.bool_)[trace.name] & (owner >= 0))
    rows = np.flatnonzero((trace.phase == data) & (owner >= 0))
    rows = rows[content[trace.name[rows]]]
    found: list[list[Batch]] = [[] for _ in passes]
    if len(rows) == 0:
        return found
    begins = np.flatnonzero(np.concatenate([[True], np.diff(rows) != 1]))
    before = np.searchsorted(states, rows[begins]) - 1
    for begin, end, at in zip(begins, [*begins[1:], len(rows)], before, strict=True):
        first, last = int(rows[begin]), int(rows[end - 1])
        state = int(states[at]) if at >= 0 else first
        found[owner[first]].append(
            Batch(
                row=first,
                step=int(trace.step[first]),
                content=xxhash.xxh3_128_digest(np.ascontiguousarray(trace.digest[first : last + 1]).tobytes()),
                worker=workers[trace.name[state]] if owner[state] == owner[first] else "",
            )
        )
    return found
