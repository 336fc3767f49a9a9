"""The step from which a resumed launch goes on."""

import numpy as np

from ddp_repro.judge.rows import in_phases
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace


def begins_at(straight: Launch, resumed: Launch, expected: int | None) -> int:
    """Return the step of the uninterrupted launch that a resumed one starts from.

    A trace that counts on says so itself. One that counts from 0 starts where its parameters are those that the other
    launch had before a step; where they are those of none or of several, ``expected`` decides, and where nothing is
    expected, how much of what its first step starts from is that of a step.
    """
    rank = min(straight.traces.keys() & resumed.traces.keys(), default=None)
    if rank is None:
        return expected or 0
    trace, other = resumed.traces[rank], straight.traces[rank]
    counted = trace.step[trace.step >= 0]
    if len(counted) and counted[0] > 0:
        return int(counted[0])
    mine = _held(trace, int(counted[0]) if len(counted) else 0)
    steps = [int(step) for step in np.unique(other.step[other.step >= 0])]
    found = [step for step in steps if mine and _held(other, step) == mine]
    if len(found) == 1:
        return found[0]
    if expected is not None:
        return expected
    first = _started_from(trace, 0)
    return max(found or steps, key=lambda step: len(first & _started_from(other, step)), default=0)


def _started_from(trace: Trace, step: int) -> set[tuple[str, bytes]]:
    """Return all that a step starts from and the samples that it trains on, as names and digests."""
    rows = np.flatnonzero((trace.step == step) & in_phases(trace, ("boundary", "data")))
    return {(trace.names[trace.name[row]], trace.digest[row].tobytes()) for row in rows}


def _held(trace: Trace, step: int) -> dict[str, bytes]:
    """Return the digests of the parameters before a step."""
    rows = np.flatnonzero((trace.step == step) & in_phases(trace, ("boundary",)))
    told = ((trace.names[trace.name[row]], trace.digest[row].tobytes()) for row in rows)
    return {name: digest for name, digest in told if name.startswith("param.")}
