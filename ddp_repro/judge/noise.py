"""Whether ranks draw the same random numbers in their main processes."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass, split_name
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.reader import Trace

_DEVICE: Final = re.compile(r"([a-z]+):\d+")

States = npt.NDArray[np.uint64]
"""``uint64[n, 4]``: the number of the delivery, both halves of the state's digest, and the rank."""


def noise_findings(launch: int, traces: Mapping[int, Trace], passes: Sequence[Pass]) -> list[Finding]:
    """Return a warning for each library whose state is equal on two ranks that both drew since the last batch.

    Draws across the beginning of a pass do not count: a loader and its sampler draw their seeds there, on all ranks
    alike.
    """
    states: dict[str, list[States]] = defaultdict(list)
    names: dict[str, str] = {}
    for rank, trace in sorted(traces.items()):
        starts = np.array(sorted(one.start for one in passes if one.rank == rank), dtype=np.int64)
        for name, library in _libraries(trace).items():
            states[library].append(_advanced(trace, name, starts))
            names.setdefault(library, name)
    found = ((library, _alike(np.concatenate(parts))) for library, parts in states.items())
    return [_finding(launch, traces, (library, names[library]), alike) for library, alike in found if len(alike)]


def _libraries(trace: Trace) -> dict[str, str]:
    """Return the main process's generators by row name; a rank's only device is called by its type alone."""
    codes = np.unique(trace.name[_rng(trace)])
    names = [name for name in (trace.names[code] for code in codes) if split_name(name) is None]
    types = [match[1] for match in map(_DEVICE.fullmatch, names) if match]
    return {
        name: match[1] if (match := _DEVICE.fullmatch(name)) and types.count(match[1]) == 1 else name for name in names
    }


def _rng(trace: Trace) -> npt.NDArray[np.bool_]:
    return np.equal(trace.phase, trace.phases.index("rng") if "rng" in trace.phases else -1)


def _advanced(trace: Trace, name: str, starts: npt.NDArray[np.int64]) -> States:
    rows = np.flatnonzero(_rng(trace) & (trace.name == trace.names.index(name)))
    digest = trace.digest[rows]
    moved = np.zeros(len(rows), np.bool_)
    moved[1:] = (digest[1:] != digest[:-1]).any(axis=1)
    moved[1:] &= np.searchsorted(starts, rows[1:]) == np.searchsorted(starts, rows[:-1])
    numbers = np.flatnonzero(moved)
    rank = np.full(len(numbers), trace.meta.rank)
    return np.column_stack([numbers.astype(np.uint64), digest[numbers], rank.astype(np.uint64)])


def _alike(states: States) -> States:
    """Return those that share delivery and state with another rank, in order of delivery."""
    order = np.lexsort((states[:, 3], states[:, 2], states[:, 1], states[:, 0]))
    states = states[order]
    same = (states[1:, :3] == states[:-1, :3]).all(axis=1)
    shared: npt.NDArray[np.bool_] = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    return states[np.flatnonzero(shared)]


def _finding(launch: int, traces: Mapping[int, Trace], library: tuple[str, str], alike: States) -> Finding:
    delivery = int(alike[0, 0])
    ranks = tuple(sorted({int(rank) for rank in alike[alike[:, 0] == delivery, 3]}))
    place = Place(
        witness="invariants",
        severity="warning",
        launches=(launch,),
        step=_step(traces[ranks[0]], library[1], delivery),
        ranks=ranks,
        phase="rng",
        name=library[1],
    )
    deliveries = len(np.unique(alike[:, 0]))
    gaps = {"where": "main process", "library": library[0], "who": numbered("rank", ranks)}
    return finding("correlated-noise", place, gaps, detail=f"before {counted(deliveries, 'batch')} in all")


def _step(trace: Trace, name: str, delivery: int) -> int | None:
    if name not in trace.names:
        return None
    rows = np.flatnonzero(_rng(trace) & (trace.name == trace.names.index(name)))
    return int(trace.step[rows[delivery]]) if delivery < len(rows) else None
