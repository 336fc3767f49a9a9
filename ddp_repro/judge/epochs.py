"""Whether a sampler that shuffles gives each epoch an order of its own."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import lgamma, log
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass
from ddp_repro.judge.wording import counted

_COINCIDENCE: Final = log(1e-6)  # orders less likely to agree by chance than this are said to be repeated

_FEWEST: Final = 2  # one sample has no order


def epoch_findings(launch: int, passes: Sequence[Pass]) -> list[Finding]:
    """Return a finding for each sampler of a launch that shuffles and gave two training passes the same order.

    A loader that is made anew for each epoch is another one by name: loaders over samplers of one class, for data
    sets of one length, are judged together.
    """
    samplers: dict[tuple[object, ...], dict[int, list[Pass]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(passes, key=lambda one: one.start):
        if one.fact("shuffle") == 1 and one.clear and one.trains and len(one.samples) >= _FEWEST:
            kind = (one.loader.partition("[")[0], one.fact("length"), one.fact("num_replicas"))
            samplers[kind][one.rank].append(one)
    found = (_repeated(launch, by_rank) for by_rank in samplers.values())
    return [finding for finding in found if finding is not None]


_Pair = tuple[tuple[str, int], tuple[str, int]]


def _repeated(launch: int, by_rank: Mapping[int, Sequence[Pass]]) -> Finding | None:
    """Judge the repetitions of each rank, those of several ranks together, by how likely chance is."""
    repetitions: dict[_Pair, list[tuple[Pass, Pass]]] = defaultdict(list)
    likely: dict[_Pair, float] = {}
    for passes in by_rank.values():
        for earlier, (first, second) in _repetitions(passes):
            pair = (first.loader, first.number), (second.loader, second.number)
            repetitions[pair].append((first, second))
            likely[pair] = log(len(by_rank) * earlier**2)
    sure = [on for pair, on in repetitions.items() if likely[pair] - _log_orders(on) < _COINCIDENCE]
    if not sure:
        return None
    on = min(sure, key=lambda pairs: (pairs[0][1].start, pairs[0][0].start))
    first, second = on[0]
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=min(again.step for _, again in on),
        ranks=tuple(sorted(again.rank for _, again in on)),
        phase="data",
        name=f"{second.loader}.index",
    )
    more = len({(pairs[0][1].loader, pairs[0][1].number) for pairs in sure}) - 1
    gaps = {"loader": second.loader, "first": str(first.number), "second": str(second.number)}
    gaps["first"] += "" if first.loader == second.loader else f" of {first.loader}"
    gaps["reason"] = reason(first, second)
    return finding("epoch-order", place, gaps, detail=f"the same in {counted(more, 'later pass')}" if more else "")


def _repetitions(passes: Sequence[Pass]) -> Iterator[tuple[int, tuple[Pass, Pass]]]:
    """Yield each pass whose order an earlier one had, as far as both were delivered, with the one that shows most.

    The number before it is how many passes there were to agree with.
    """
    kept: dict[bytes, list[Pass]] = defaultdict(list)
    shortest = min((len(one.samples) for one in passes), default=0)
    for place, one in enumerate(passes):
        alike = kept[one.samples[:shortest].tobytes()]
        best: Pass | None = None
        for other in alike:
            if best is not None and len(best.samples) >= min(len(other.samples), len(one.samples)):
                continue
            if _same_order(other, one) and _comparable(other, one) and not _asked_for(passes, other, one):
                best = other
        if best is not None:
            yield place, (best, one)
        alike.append(one)


def _comparable(first: Pass, second: Pass) -> bool:
    """Return whether two passes are over the same data: of one loader, or one after the other with equal content.

    Two data sets of one length are shuffled alike by samplers of one seed, and that is no fault. Where the same
    samples are augmented, their labels still are the same.
    """
    if first.loader == second.loader:
        return True
    last = int(first.rows[-1])
    return last < second.start and bool(first.content & second.content)


def _same_order(a: Pass, b: Pass) -> bool:
    common = min(len(a.samples), len(b.samples))
    if a.whole and b.whole and len(a.samples) != len(b.samples):
        return False
    return np.array_equal(a.samples[:common], b.samples[:common])


def _asked_for(passes: Sequence[Pass], first: Pass, second: Pass) -> bool:
    """Return whether the epoch was set back in between: then the same order is what was asked for."""
    if first.fact("epoch") is None or first.fact("epoch") != second.fact("epoch"):
        return False
    between = (one for one in passes if first.start < one.start < second.start)
    return any(one.fact("epoch") != first.fact("epoch") for one in between)


def _log_orders(repetitions: Sequence[tuple[Pass, Pass]]) -> float:
    """Return the logarithm of the number of orders that passes over so many samples can have.

    The ranks' shards are cut from one permutation of the whole data set; where its length is unknown, the samples
    seen are all that is counted on.
    """
    compared = [min(len(first.samples), len(second.samples)) for first, second in repetitions]
    length = max(repetitions[0][0].fact("length") or 0, *compared)
    return lgamma(length + 1) - lgamma(max(length - sum(compared), 0) + 1)


def reason(first: Pass, second: Pass) -> str:
    """Return why two passes have the same order, by the epochs that are known of them."""
    before, after = first.fact("epoch"), second.fact("epoch")
    if before is None or after is None:
        return "its generator is seeded anew for each pass"
    if before == after:
        return f"its epoch stayed at {after}, so set_epoch was not called"
    return f"although its epoch moved from {before} to {after}, which does not reach what shuffles"
