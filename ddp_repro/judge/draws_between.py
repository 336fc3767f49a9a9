"""Who drew the random numbers that one variant drew and its twin did not: the evaluation that only one of them made."""

from collections.abc import Iterator, Sequence

import numpy as np

from ddp_repro.judge.deliveries import owners
from ddp_repro.judge.drawn import row_of
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass, passes_of
from ddp_repro.judge.rows import Index
from ddp_repro.judge.wording import listed
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace


def who_drew(launches: Sequence[Launch], compared: Sequence[Launch], told: Finding) -> Iterator[str]:
    """Yield in which passes that were left out a generator went another way, where its state is what differs first.

    ``compared`` are ``launches`` without what was left out; the rows know their places by ``seq``.
    """
    if told.phase != "rng" or told.step is None or told.cause != "rng-draws":
        return
    for launch, side in zip(launches, compared, strict=True):
        part = side.traces[told.ranks[0]]
        yield from _drawing(launch.traces[told.ranks[0]], part, row_of(part, "rng", told.name, told.step))


def _drawing(whole: Trace, part: Trace, row: int) -> Iterator[str]:
    """Yield a sentence on the passes of ``whole`` between a state of ``part`` and the one before it."""
    same = np.flatnonzero((part.phase == part.phase[row]) & (part.name == part.name[row]))
    at = int(np.searchsorted(same, row))
    begin = int(part.seq[same[at - 1]]) if at else -1
    end = int(part.seq[row])
    passes = passes_of(whole)
    owner = owners(whole, passes)
    name = part.names[part.name[row]]
    states = np.flatnonzero(whole.name == (whole.names.index(name) if name in whole.names else -1))
    between = states[(whole.seq[states] > begin) & (whole.seq[states] < end)]
    told = [_when(whole, passes[place], between[owner[between] == place]) for place in np.unique(owner[between])]
    if told:
        yield f"in between it was drawn from {listed(dict.fromkeys(told))}"


def _when(trace: Trace, one: Pass, states: Index) -> str:
    digests = trace.digest[states]
    if len(states) > 1 and (digests[1:] != digests[:-1]).any():
        return f"during the evaluation over {one.loader}"
    return (
        f"around the evaluation over {one.loader} (as a pass begins, a loader without a generator of its own draws its "
        "seed from torch's)"
    )
