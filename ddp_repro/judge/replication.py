"""Whether ranks, or the workers of a rank, train on the same batches because nothing shares the data among them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.deliveries import Batch, batches_of
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass
from ddp_repro.judge.rows import REPLICATED
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.trace.reader import Trace

_FEWEST: Final = 2  # batches: one alone may be equal by chance, in data of little content


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """What one rank trained on in one pass over a loader that shares nothing out; ``batches`` in order."""

    of: Pass
    batches: list[Batch]

    @property
    def contents(self) -> list[bytes]:
        """The batches by their content."""
        return [batch.content for batch in self.batches]

    @property
    def name(self) -> str:
        """The name of the rows that tell what was delivered."""
        return f"{self.of.loader}.{'index' if len(self.of.samples) else 'batch'}"


def replication_findings(
    launch: int, traces: Mapping[int, Trace], passes: Sequence[Pass]
) -> tuple[list[Finding], list[str]]:
    """Return a finding a loader whose batches several ranks or workers train on, and notes on what may be meant so.

    Only loaders whose sampler does not split the samples are judged here. The evidence is that batches have the same
    content in the same order; of ranks that shuffle one data set differently only the indices tell, which are no proof
    that it is one data set: a warning.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    for groups in _streams(traces, passes).values():
        first = groups[min(groups)]
        found = [*_of_workers(launch, first), *_of_ranks(launch, first, traces, notes)]
        findings += found[:1] or list(_unshared(launch, first, traces))
    return findings, notes


def _streams(traces: Mapping[int, Trace], passes: Sequence[Pass]) -> dict[str, dict[int, list[Stream]]]:
    """Return by loader and pass what each rank trained on, where no sampler shared it out."""
    found: dict[str, dict[int, list[Stream]]] = defaultdict(lambda: defaultdict(list))
    for rank, trace in sorted(traces.items()):
        mine = [one for one in passes if one.rank == rank]
        if not any(map(_is_unshared, mine)):
            continue
        for one, batches in zip(mine, batches_of(trace, mine), strict=True):
            if _is_unshared(one):
                found[one.loader][one.number].append(Stream(of=one, batches=batches))
    return found


def _is_unshared(one: Pass) -> bool:
    return bool(one.trains) and one.clear and (one.fact("num_replicas") or 1) == 1


def _of_ranks(
    launch: int, streams: Sequence[Stream], traces: Mapping[int, Trace], notes: list[str]
) -> Iterator[Finding]:
    alike = [group for group in _alike(streams) if len(group) > 1]
    if not alike:
        return
    ranks = [stream.of.rank for stream in alike[0]]
    if len(ranks) < len(traces) or not all(map(_is_averaged, traces.values())):
        notes.append(f"{alike[0][0].of.loader}: {numbered('rank', ranks)} train on the same batches; meant so?")
        return
    first = alike[0][0]
    common = min(len(stream.batches) for stream in alike[0])
    samples = min(len(np.unique(stream.of.samples)) for stream in alike[0])
    what = counted(samples, "sample") if samples else counted(common, "batch")
    gaps = {
        "loader": first.of.loader,
        "pass": str(first.of.number),
        "counts": f"{what} delivered by each of {numbered('rank', ranks)}, in the same order",
        "reason": " (no sampler shares the data among the ranks)",
    }
    yield finding("shards-overlap", _place(launch, first, ranks), gaps)


def _alike(streams: Sequence[Stream]) -> list[list[Stream]]:
    """Return the streams in groups that deliver the same, as far as each goes; the largest group first."""
    groups: list[list[Stream]] = []
    for stream in streams:
        if len(set(stream.contents)) < _FEWEST:
            continue
        same = next((group for group in groups if _same(group[0].contents, stream.contents)), None)
        if same is None:
            groups.append([stream])
        else:
            same.append(stream)
    return sorted(groups, key=len, reverse=True)


def _same(a: Sequence[bytes], b: Sequence[bytes]) -> bool:
    common = min(len(a), len(b))
    return common >= _FEWEST and list(a[:common]) == list(b[:common])


def _is_averaged(trace: Trace) -> bool:
    """Return whether a rank's gradients are averaged over ranks, for which to train on the same is of no use."""
    reduced = trace.phases.index("grad_reduced") if "grad_reduced" in trace.phases else -1
    marked = np.array([spec.endswith(REPLICATED) for spec in trace.specs], np.bool_)
    return bool((marked[trace.spec] & (trace.phase == reduced)).any()) if len(trace) else False


def _of_workers(launch: int, streams: Sequence[Stream]) -> Iterator[Finding]:
    """Yield a finding where workers of a rank deliver the same batches of a data set without indices."""
    found = {stream.of.rank: workers for stream in streams if (workers := _twice(stream))}
    if not found:
        return
    concerned = [stream for stream in streams if stream.of.rank in found]
    first = concerned[0]
    workers = found[first.of.rank]
    again = len(first.batches) - len(set(first.contents))
    gaps = {
        "loader": first.of.loader,
        "pass": str(first.of.number),
        "counts": f"{listed(workers)} deliver the same batches, {counted(again, 'batch')} of {len(first.batches):,} "
        f"again on rank {first.of.rank}",
        "reason": " (no worker is told which part of the data is its own: see torch.utils.data.get_worker_info)",
    }
    yield finding("shards-overlap", _place(launch, first, list(found)), gaps)


def _twice(stream: Stream) -> list[str]:
    """Return workers that deliver the same batches as another one."""
    if len(stream.of.samples):
        return []
    by_worker: dict[str, list[bytes]] = defaultdict(list)
    for batch in stream.batches:
        if batch.worker:
            by_worker[batch.worker].append(batch.content)
    distinct = {worker: contents for worker, contents in by_worker.items() if len(set(contents)) >= _FEWEST}
    return [
        worker
        for worker, contents in distinct.items()
        if any(_same(contents, others) for other, others in distinct.items() if other != worker)
    ]


def _unshared(launch: int, streams: Sequence[Stream], traces: Mapping[int, Trace]) -> Iterator[Finding]:
    """Yield a warning where every rank draws from the whole of a data set in an order of its own."""
    lengths = {stream.of.fact("length") for stream in streams}
    shuffles = all(stream.of.fact("shuffle") == 1 for stream in streams)
    if len(streams) < max(len(traces), 2) or None in lengths or len(lengths) > 1 or not shuffles:
        return
    delivered = np.concatenate([np.unique(stream.of.samples) for stream in streams])
    twice = len(delivered) - len(np.unique(delivered))
    if not twice or not all(map(_is_averaged, traces.values())):
        return
    first, ranks = streams[0], [stream.of.rank for stream in streams]
    counts = f"{numbered('rank', ranks)} draw from all {lengths.pop():,} samples, {counted(twice, 'sample')} came twice"
    place = _place(launch, first, ranks, is_warning=True)
    yield finding("shards-unshared", place, {"loader": first.of.loader, "pass": str(first.of.number), "counts": counts})


def _place(launch: int, first: Stream, ranks: Sequence[int], *, is_warning: bool = False) -> Place:
    return Place(
        witness="invariants",
        severity="warning" if is_warning else "error",
        launches=(launch,),
        step=first.of.step,
        ranks=tuple(ranks),
        phase="data",
        name=first.name,
    )
