"""What one rank shows of a run: where two launches differ, step by step, and the losses of all launches."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.agreement import every_disagreement
from ddp_repro.judge.as_compared import How, as_compared
from ddp_repro.judge.comparison import EveryDifference, every_difference
from ddp_repro.judge.distance import ulps_between
from ddp_repro.judge.finals import was_observed
from ddp_repro.judge.ignored import without_ignored
from ddp_repro.judge.rows import Labels, Rows, causal_places
from ddp_repro.report.html.places import COUNT
from ddp_repro.report.html.source import Source
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.observations import Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NOT_COMPARED, EQUAL = -2, -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Losses:
    """The losses of one rank in one launch: steps and values, n each."""

    launch: int
    rank: int
    step: Ints
    value: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Differences:
    """Where two launches differ on one rank; arrays are by step, the first element stands for step -1.

    ``first`` is the place of the causally first difference (``EQUAL``, ``NOT_COMPARED``), ``name`` its name as a place
    in ``names``. ``rows`` counts the observations of each step and place (in the launch that has more), ``differing``
    those that differ, ``ulps`` is the largest distance of a loss (NaN: none). ``chain`` names what differs in the first
    step that differs, by place.
    """

    rank: int
    first: Ints
    name: Ints
    names: list[str]
    rows: Ints
    differing: Ints
    ulps: Floats
    chain: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """What one rank shows; ``differences`` is ``None`` where not both launches have a trace of it.

    ``unread`` holds one sentence on each trace that could not be read.
    """

    rank: int
    differences: Differences | None
    losses: list[Losses]
    unread: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is looked at: all ``launches`` for their losses, ``pair`` for its differences.

    Of launches that are ``unfinished``, what is missing at the end is no difference. With a ``reference``, a launch
    with one rank's trace, each rank of that launch is compared with that one instead.
    """

    launches: Sequence[int]
    pair: tuple[int, int] | None
    how: How
    unfinished: frozenset[int] = frozenset()
    reference: Launch | None = None


def look_at(rank: int, source: Source, look: Look) -> Seen:
    """Read one rank's traces and return what a page shows of them."""
    losses: list[Losses] = []
    unread: list[str] = []
    kept: dict[int, Launch] = {}
    for number in look.launches:
        launch = source.of_rank(number, rank)
        unread += launch.problems
        if rank in launch.traces:
            losses.append(_losses(number, rank, launch.traces[rank]))
            if number in (look.pair or ()) or (look.reference and number == look.reference.index):
                kept[number] = launch
    differences = None
    if look.reference is not None:
        if look.reference.index in kept:
            found = _disagreeing(look.reference, kept[look.reference.index], rank, look)
            differences = _differences(rank, found, _last_step(rank, kept))
    elif look.pair is not None and len(kept) == 2 and all(map(was_observed, kept.values())):
        found = _compared((kept[look.pair[0]], kept[look.pair[1]]), rank, look)
        differences = _differences(rank, found, _last_step(rank, kept))
    return Seen(rank=rank, differences=differences, losses=losses, unread=unread)


def _compared(pair: tuple[Launch, Launch], rank: int, look: Look) -> EveryDifference:
    a, b, before = as_compared(*pair, look.how)
    traces = a.traces[rank], b.traces[rank]
    if not look.unfinished.intersection(one.index for one in pair):
        return every_difference(*traces, before=before)
    last = min(int(trace.step[-1]) if len(trace) else -1 for trace in traces)
    found = every_difference(*traces, before=last + 1 if before is None else min(before, last + 1))
    return _until(found, last)


def _disagreeing(reference: Launch, launch: Launch, rank: int, look: Look) -> EveryDifference:
    (one, other), _ = without_ignored([reference, launch], look.how.ignore)
    traces = next(iter(one.traces.values())), other.traces[rank]
    found = every_disagreement(*traces)
    if launch.index not in look.unfinished:
        return found
    return _until(found, min(int(trace.step[-1]) if len(trace) else -1 for trace in traces))


def _until(found: EveryDifference, last: int) -> EveryDifference:
    """Leave out what only one side has from step ``last`` on."""
    kept = (found.seen.step < last) | ((found.a >= 0) & (found.b >= 0))
    return replace(found, seen=found.seen.take(kept), place=found.place[kept], a=found.a[kept], b=found.b[kept])


def _losses(number: int, rank: int, trace: Trace) -> Losses:
    code = trace.phases.index("loss") if "loss" in trace.phases else -1
    rows = np.flatnonzero((trace.phase == code) & trace.valid)
    return Losses(launch=number, rank=rank, step=trace.step[rows].astype(np.int64), value=trace.value[rows])


def _last_step(rank: int, launches: dict[int, Launch]) -> int:
    return max(int(launch.traces[rank].step.max(initial=-1)) for launch in launches.values())


def _differences(rank: int, found: EveryDifference, last: int) -> Differences:
    """Return what differs on a rank, up to step ``last`` or as far as rows were compared."""
    steps = 2 + max(last, *(int(rows.step.max(initial=-1)) for rows in found.rows))
    counts = [_counts(found.labels, rows, steps) for rows in found.rows]
    rows = np.maximum(*counts)
    first = np.where(rows.any(axis=1), EQUAL, NOT_COMPARED).astype(np.int64)
    name = np.full(steps, -1, np.int64)
    at, place = found.seen.step.astype(np.int64) + 1, found.place.astype(np.int64)
    row = np.where(found.a >= 0, found.a, found.b)
    order = np.lexsort((row, place, at))
    begins, index = np.unique(at[order], return_index=True)
    first[begins] = place[order][index]
    name[begins] = found.seen.name[order][index]
    differing = np.bincount(at * COUNT + place, minlength=steps * COUNT).reshape(steps, COUNT)
    return Differences(
        rank=rank,
        first=first,
        name=name,
        names=found.labels.names,
        rows=np.maximum(rows, differing),
        differing=differing,
        ulps=_ulps(found, steps),
        chain=_chain(found, order[at[order] == begins[0]]) if len(begins) else {},
    )


def _counts(labels: Labels, rows: Rows, steps: int) -> Ints:
    at = (rows.step.astype(np.int64) + 1) * COUNT + causal_places(labels, rows)
    return np.bincount(at, minlength=steps * COUNT).reshape(steps, COUNT)


def _ulps(found: EveryDifference, steps: int) -> Floats:
    """Return the largest distance of two losses in each step, NaN where none differs."""
    told = np.full(steps, np.nan)
    of_loss = found.seen.phase == found.labels.phase("loss")
    at = np.flatnonzero(of_loss & (found.a >= 0) & (found.b >= 0))
    for spec in np.unique(found.seen.spec[at]):
        here = at[found.seen.spec[at] == spec]
        dtype = found.labels.specs[spec].partition("[")[0]
        a, b = (rows.value[side[here]] for rows, side in zip(found.rows, (found.a, found.b), strict=True))
        np.fmax.at(told, found.seen.step[here] + 1, ulps_between(dtype, a, b))
    return told


def _chain(found: EveryDifference, rows: Ints) -> dict[int, list[str]]:
    names: dict[int, dict[str, None]] = {}
    for row in rows:
        held = names.setdefault(int(found.place[row]), {})
        held[found.labels.names[found.seen.name[row]]] = None
    return {place: list(held) for place, held in names.items()}
