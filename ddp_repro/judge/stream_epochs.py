"""Whether an iterable data set that is told of epochs delivers another order in each."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.deliveries import Batch, batches_of
from ddp_repro.judge.epochs import reason
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass
from ddp_repro.judge.wording import counted
from ddp_repro.trace.reader import Trace

_FEWEST: Final = 2  # one batch has no order

_Stream = Sequence[tuple[Pass, list[Batch]]]


def stream_findings(launch: int, traces: Mapping[int, Trace], passes: Sequence[Pass]) -> list[Finding]:
    """Return a finding for each data set without indices whose epoch moved and which delivered the same batches again.

    It has no sampler that could tell its order. The epoch that is known is that of its object in the main process;
    copies of it in workers that stay may not have heard of it.
    """
    streams: dict[str, list[tuple[Pass, list[Batch]]]] = defaultdict(list)
    for rank, trace in sorted(traces.items()):
        mine = [one for one in passes if one.rank == rank]
        if not any(map(_is_told_of_epochs, mine)):
            continue
        for one, batches in zip(mine, batches_of(trace, mine), strict=True):
            if _is_told_of_epochs(one):
                streams[one.loader].append((one, batches))
    found = (_delivered_again(launch, stream) for stream in streams.values())
    return [finding for finding in found if finding is not None]


def _is_told_of_epochs(one: Pass) -> bool:
    return not len(one.samples) and one.clear and bool(one.trains) and one.fact("epoch") is not None


def _delivered_again(launch: int, stream: _Stream) -> Finding | None:
    again: dict[int, list[tuple[Pass, Pass, Batch]]] = defaultdict(list)
    for first, batches in stream:
        for second, others in stream:
            if (
                first.rank == second.rank
                and first.start < second.start
                and _repeats((first, batches), (second, others))
            ):
                again[second.number].append((first, second, others[0]))
    if not again:
        return None
    on = again[min(again)]
    first, second, batch = on[0]
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=batch.step,
        ranks=tuple(sorted({one.rank for _, one, _ in on})),
        phase="data",
        name=f"{second.loader}.batch",
    )
    gaps = {
        "loader": second.loader,
        "first": str(first.number),
        "second": str(second.number),
        "reason": reason(first, second),
    }
    more = len(again) - 1
    return finding("epoch-order", place, gaps, detail=f"the same in {counted(more, 'later pass')}" if more else "")


def _repeats(one: tuple[Pass, list[Batch]], other: tuple[Pass, list[Batch]]) -> bool:
    """Return whether two passes of different epochs have the same batches, as far as both go."""
    (first, batches), (second, others) = one, other
    if first.fact("epoch") == second.fact("epoch"):
        return False
    common = min(len(batches), len(others))
    contents = [batch.content for batch in batches[:common]]
    return len(set(contents)) >= _FEWEST and contents == [batch.content for batch in others[:common]]
