"""Which generator is behind what differs first: numbers are drawn before its state is looked at again."""

import re
from dataclasses import replace
from typing import Final

import numpy as np

from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.evidence import Evidence
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.rows import Index, Mask, causal_place
from ddp_repro.trace.reader import Trace
from ddp_repro.trace.schema import UNDRAWN

_GENERATOR: Final = re.compile(r"(?:(worker\d+|main)\.)?(.+?)(?:\.(before|after|seeded))?", re.DOTALL)
_SEEDED_BY_THE_SYSTEM: Final = ("python", "numpy")
"""Libraries whose generator is in another state in each process until it is seeded; torch's all begin alike."""


def as_drawn(evidence: Evidence) -> Evidence:
    """Return the evidence with the generator first, where what differs was drawn from another state of it.

    Without workers a batch is drawn from the main process's generators, whose states are observed after it. What is
    drawn after the batch in the step in which a generator is first used shows before its state does.
    """
    first = evidence.first
    if first.kind in (Kind.VALUE, Kind.SPEC) and first.place > causal_place("rng"):
        begun = _begun_in(evidence)
        return evidence if begun is None else _at_generator(evidence, *begun)
    name = _drawn_from(evidence)
    if name is None:
        return evidence
    a, b = (row_of(trace, "rng", name, first.step) for trace in evidence.traces)
    return _at_generator(evidence, name, (a, b))


def _at_generator(evidence: Evidence, name: str, rows: tuple[int, int]) -> Evidence:
    """Return the evidence with the state of a generator, in these rows of the traces, as what differs first."""
    first, trace = evidence.first, evidence.traces[0]
    moved = replace(
        first,
        kind=Kind.VALUE,
        phase="rng",
        name=name,
        spec=trace.specs[trace.spec[rows[0]]],
        rows=rows,
        place=causal_place("rng"),
        names={**first.names, "rng": tuple(dict.fromkeys([name, *first.names.get("rng", ())]))},
    )
    return replace(evidence, first=moved)


def _drawn_from(evidence: Evidence) -> str | None:
    """Return the main process's generator in whose other state a batch of the same samples was drawn, if there is one.

    That is one which was seen equal before and no longer is with this batch, of a loader without workers.
    """
    parts = split_name(evidence.first.name)
    if parts is None or evidence.first.phase != "data" or not parts[1].startswith("batch"):
        return None
    fetching = (_last_value(trace, f"{parts[0]}.num_workers", evidence.first) for trace in evidence.traces)
    if evidence.first.kind is not Kind.VALUE or any(workers != 0 for workers in fetching):
        return None
    mains = (name for name in evidence.names("rng") if split_name(name) is None and not is_new(evidence, name))
    return next(mains, None)


def _begun_in(evidence: Evidence) -> tuple[str, tuple[int, int]] | None:
    """Return the main process's generator that was first moved in the step, from another state in each launch.

    That is where its state was not told yet with the batch (nobody seeds what nobody uses) and is another one when it
    is told next: it was drawn from in the step, before what differs first. Also its rows with the batch.
    """
    (a, b), (row_a, row_b) = evidence.traces, evidence.first.rows
    for name in _SEEDED_BY_THE_SYSTEM:
        one, other = _looks_around(a, name, row_a), _looks_around(b, name, row_b)
        if one and other and not np.array_equal(a.digest[one[1]], b.digest[other[1]]):
            return name, (one[0], other[0])
    return None


def _looks_around(trace: Trace, name: str, row: int | None) -> tuple[int, int] | None:
    """Return the rows of a generator's last state before a row and of the next one, if it was first moved between."""
    if row is None or name not in trace.names or "rng" not in trace.phases:
        return None
    rows = np.flatnonzero((trace.phase == trace.phases.index("rng")) & (trace.name == trace.names.index(name)))
    at = int(np.searchsorted(rows, row))
    if not 0 < at < len(rows) or trace.step[rows[at - 1]] != trace.step[row]:
        return None
    told = _is_told(trace, rows[at - 1 : at + 1])
    return (int(rows[at - 1]), int(rows[at])) if not told[0] and told[1] else None


def _is_told(trace: Trace, rows: Index) -> Mask:
    """Return for each row of a generator whether its state is told: it was moved since observing began."""
    told: Mask = (trace.digest[rows] != np.frombuffer(UNDRAWN, np.uint64)).any(axis=1)
    return told


def _last_value(trace: Trace, name: str, first: Divergence) -> float | None:
    if name not in trace.names:
        return None
    rows = np.flatnonzero((trace.name == trace.names.index(name)) & (trace.step <= first.step))
    return float(trace.value[rows[-1]]) if len(rows) else None


def row_of(trace: Trace, phase: str, name: str, step: int) -> int:
    """Return the first row of a name in a step; there must be one."""
    rows = trace.rows_of(step)
    here = (trace.phase[rows] == trace.phases.index(phase)) & (trace.name[rows] == trace.names.index(name))
    return int(rows[here][0])


def is_new(evidence: Evidence, name: str) -> bool:
    """Return whether a generator's state was never told before the first step that differs.

    One that nothing had moved yet tells something only where all processes begin alike.
    """
    trace = evidence.traces[0]
    if name not in trace.names:
        return True
    seen = np.flatnonzero((trace.name == trace.names.index(name)) & (trace.step < evidence.first.step))
    return not bool((_is_told(trace, seen) if library_of(name) in _SEEDED_BY_THE_SYSTEM else seen >= 0).any())


def library_of(name: str) -> str:
    """Return what a generator is called: ``X[0].worker1.numpy.before`` is numpy."""
    parts = split_name(name)
    match = _GENERATOR.fullmatch(parts[1] if parts else name)
    assert match is not None, "the pattern matches every name"
    return match[2]


def owner_of(name: str) -> str:
    """Return whose generator it is, as the end of a sentence."""
    parts = split_name(name)
    match = _GENERATOR.fullmatch(parts[1]) if parts else None
    return f" of {parts[0]}'s {match[1]}" if parts and match and match[1] else " of the main process"
