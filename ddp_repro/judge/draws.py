"""Whether loader workers draw random numbers twice: in another worker, in another pass, or on another rank."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass, split_name
from ddp_repro.judge.rows import Index
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.reader import Trace

_WORKER: Final = re.compile(r"(worker\d+|main)\.(.+)\.(before|after|seeded)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One batch as one generator saw it: who drew for it, in which pass, from what state to what, its last sample.

    ``seeds`` is the digest over what it was seeded with in the course of it; empty where it was not, as far as known.
    """

    rank: int
    step: int
    worker: str
    passed: int
    before: bytes
    after: bytes
    sample: int
    seeds: bytes = b""


def worker_draws(launch: int, traces: Mapping[int, Trace], passes: Sequence[Pass]) -> list[Finding]:
    """Return findings on equal draws for different samples, one a loader and library.

    Within a rank they are an error, only across ranks a warning.
    """
    generators: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
    for rank, trace in sorted(traces.items()):
        mine = [one for one in passes if one.rank == rank]
        for key, deliveries in _deliveries(trace, mine).items():
            generators[key] += deliveries
    found = (_equal_draws(launch, key, deliveries) for key, deliveries in generators.items())
    return [one for one in found if one is not None]


def _deliveries(trace: Trace, passes: Sequence[Pass]) -> dict[tuple[str, str], list[Delivery]]:
    """Return the deliveries of a rank whose generator advanced or was seeded, by loader and library.

    Evaluation passes are left out.
    """
    by_loader: dict[str, list[Pass]] = defaultdict(list)
    for one in passes:
        by_loader[one.loader].append(one)
    found: dict[tuple[str, str], list[Delivery]] = {}
    for (loader, library), columns in _generators(trace).items():
        found[loader, library] = [
            delivery
            for worker, codes in columns.items()
            for delivery in _advanced(trace, worker, codes, by_loader[loader])
        ]
    return found


_Codes = tuple[int, int, int]
"""Name codes of the states before and after a batch, and of the seeds (-1: never seeded)."""


def _generators(trace: Trace) -> dict[tuple[str, str], dict[str, _Codes]]:
    """Return for each loader and library its name codes, by worker."""
    codes: dict[tuple[str, str], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for code, name in enumerate(trace.names):
        parts = split_name(name)
        match = _WORKER.fullmatch(parts[1]) if parts else None
        if parts and match:
            codes[parts[0], match[2]][match[1]][match[3]] = code
    return {
        key: {
            worker: (sides["before"], sides["after"], sides.get("seeded", -1))
            for worker, sides in workers.items()
            if {"before", "after"} <= sides.keys()
        }
        for key, workers in codes.items()
    }


def _advanced(trace: Trace, worker: str, codes: _Codes, passes: Sequence[Pass]) -> Iterator[Delivery]:
    before, after, seeded = (_rng_rows(trace, [code]) for code in codes)
    common = min(len(before), len(after))
    before, after = before[:common], after[:common]
    moved = (trace.digest[before] != trace.digest[after]).any(axis=1)
    batch, sample = _last_samples(passes, before)
    seeds = dict(zip(np.searchsorted(after, seeded) - 1, seeded, strict=True))  # seeds stand behind the states
    moved[list(seeds)] = True
    for at in np.flatnonzero(moved & (batch >= 0)):
        yield Delivery(
            rank=trace.meta.rank,
            step=int(trace.step[before[at]]),
            worker=worker,
            passed=passes[batch[at]].number,
            before=trace.digest[before[at]].tobytes(),
            after=trace.digest[after[at]].tobytes(),
            sample=int(sample[at]),
            seeds=trace.digest[seeds[at]].tobytes() if at in seeds else b"",
        )


def _rng_rows(trace: Trace, names: Sequence[int]) -> Index:
    rng = trace.phases.index("rng") if "rng" in trace.phases else -1
    return np.flatnonzero((trace.phase == rng) & np.isin(trace.name, names))


def _last_samples(passes: Sequence[Pass], states: Index) -> tuple[Index, npt.NDArray[np.uint64]]:
    """Return for each state row its pass (-1: none that is judged) and the last sample of its batch.

    The samples of a batch stand before the states, so the last one is the loader's nearest before. Evaluation is not
    judged: to draw the same there each time is what many want.
    """
    rows = np.concatenate([one.rows for one in passes]) if passes else np.empty(0, np.int64)
    if len(rows) == 0:
        return np.full(len(states), -1), np.zeros(len(states), np.uint64)
    samples = np.concatenate([one.samples for one in passes])
    judged = [number if one.trains is not False and one.clear else -1 for number, one in enumerate(passes)]
    batch = np.repeat(judged, [len(one.rows) for one in passes])
    at = np.searchsorted(rows, states) - 1
    return np.where(at >= 0, batch[at], -1), samples[at]


def _equal_draws(launch: int, key: tuple[str, str], deliveries: Sequence[Delivery]) -> Finding | None:
    """Return a finding where a generator went to the same state for batches that end with different samples.

    It went the same way there, or was seeded anew with the same number on its way. A generator that is seeded for each
    sample by its index ends alike where the last sample is the same one, whatever it started from; so only different
    last samples show that draws were repeated.
    """
    groups: dict[bytes, list[Delivery]] = defaultdict(list)
    for delivery in _drawn(deliveries):
        groups[delivery.after].append(delivery)
    repeated = [group for group in groups.values() if len({delivery.sample for delivery in group}) > 1]
    within = [part for group in repeated for part in _by_rank(group) if len({one.sample for one in part}) > 1]
    if within:
        return _worker_finding(launch, key, within)
    return _noise_finding(launch, key, repeated) if repeated else None


def _drawn(deliveries: Sequence[Delivery]) -> Iterator[Delivery]:
    """Yield the deliveries for which numbers were drawn, as far as can be told.

    A generator in the same state before and after a batch was drawn from where it was seeded for it, and what it was
    seeded with always leaves it in this state, in which it was not from the beginning. (One that is put back
    afterwards, as by ``torch.random.fork_rng``, is left in another state each time, or in none that it ever moved to.)
    """
    ends: dict[tuple[int, bytes], set[bytes]] = defaultdict(set)
    moved: set[tuple[int, bytes]] = set()
    for one in deliveries:
        ends[one.rank, one.seeds].add(one.after)
        if one.before != one.after:
            moved.add((one.rank, one.seeds))
    for one in deliveries:
        key = one.rank, one.seeds
        if one.before != one.after or (len(ends[key]) == 1 and key in moved):
            yield one


def _by_rank(group: Sequence[Delivery]) -> list[list[Delivery]]:
    ranks: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in group:
        ranks[delivery.rank].append(delivery)
    return list(ranks.values())


def _worker_finding(launch: int, key: tuple[str, str], repeated: Sequence[Sequence[Delivery]]) -> Finding:
    """Name the first batch whose draws an earlier one of the same rank had."""
    first, second = min((_first_two(group) for group in repeated), key=lambda pair: (pair[1].step, pair[1].rank))
    loader, library = key
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=second.step,
        ranks=tuple(sorted({group[0].rank for group in repeated})),
        phase="rng",
        name=f"{loader}.{second.worker}.{library}.before",
    )
    gaps = {"loader": loader, "library": library, "who": _who(first, second)}
    again = sum(len(group) - 1 for group in repeated)
    seeded = "seeded anew within the batch, with a number that does not depend on the sample; "
    detail = f"{'' if first.before == second.before else seeded}{counted(again, 'batch')} drawn again in all"
    return finding("worker-rng", place, gaps, detail=detail)


def _first_two(group: Sequence[Delivery]) -> tuple[Delivery, Delivery]:
    ordered = sorted(group, key=lambda delivery: (delivery.step, delivery.passed, delivery.worker))
    return ordered[0], next(other for other in ordered if other.sample != ordered[0].sample)


def _who(first: Delivery, second: Delivery) -> str:
    if first.worker != second.worker:
        return f"{first.worker} and {second.worker} of rank {second.rank}"
    if first.passed != second.passed:
        return f"passes {first.passed} and {second.passed} of {second.worker} on rank {second.rank}"
    return f"two batches of {second.worker} on rank {second.rank}"


def _noise_finding(launch: int, key: tuple[str, str], repeated: Sequence[Sequence[Delivery]]) -> Finding:
    first = min(repeated, key=lambda group: min(delivery.step for delivery in group))
    loader, library = key
    ranks = tuple(sorted({delivery.rank for group in repeated for delivery in group}))
    place = Place(
        witness="invariants",
        severity="warning",
        launches=(launch,),
        step=min(delivery.step for delivery in first),
        ranks=ranks,
        phase="rng",
        name=f"{loader}.{first[0].worker}.{library}.before",
    )
    gaps = {"where": loader, "library": library, "who": numbered("rank", ranks)}
    return finding("correlated-noise", place, gaps, detail=f"{counted(len(repeated), 'batch')} in all")
