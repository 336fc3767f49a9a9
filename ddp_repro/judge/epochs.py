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
    """Return a finding for each shuffling loader of a launch that gave two training passes the same order."""
    by_loader: dict[str, dict[int, list[Pass]]] = defaultdict(lambda: defaultdict(list))
    for one in passes:
        if one.fact("shuffle") == 1 and one.clear and one.trains and len(one.samples):
            by_loader[one.loader][one.rank].append(one)
    found = (_repeated(launch, loader, by_rank) for loader, by_rank in by_loader.items())
    return [finding for finding in found if finding is not None]


def _repeated(launch: int, loader: str, by_rank: Mapping[int, Sequence[Pass]]) -> Finding | None:
    """Judge the repetitions of each rank, those of several ranks together, by how likely chance is."""
    repetitions: dict[tuple[int, int], list[tuple[Pass, Pass]]] = defaultdict(list)
    for passes in by_rank.values():
        for first, second in _repetitions(passes):
            repetitions[first.number, second.number].append((first, second))
    sure = {pair: on for pair, on in repetitions.items() if _log_chance(on, len(by_rank)) < _COINCIDENCE}
    if not sure:
        return None
    pair = min(sure, key=lambda numbers: (numbers[1], numbers[0]))
    first, second = sure[pair][0]
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=min(again.step for _, again in sure[pair]),
        ranks=tuple(sorted(again.rank for _, again in sure[pair])),
        phase="data",
        name=f"{loader}.index",
    )
    more = len({numbers[1] for numbers in sure}) - 1
    gaps = {
        "loader": loader,
        "first": str(first.number),
        "second": str(second.number),
        "reason": _reason(first, second),
    }
    return finding("epoch-order", place, gaps, detail=f"the same in {counted(more, 'later pass')}" if more else "")


def _repetitions(passes: Sequence[Pass]) -> Iterator[tuple[Pass, Pass]]:
    """Yield each pass whose order an earlier one had, as far as both were delivered, with the one that shows most."""
    kept: dict[bytes, list[Pass]] = defaultdict(list)
    shortest = min((len(one.samples) for one in passes if len(one.samples) >= _FEWEST), default=0)
    for one in passes:
        if len(one.samples) < max(shortest, _FEWEST):
            continue
        alike = kept[one.samples[:shortest].tobytes()]
        best: Pass | None = None
        for other in alike:
            if best is not None and len(best.samples) >= min(len(other.samples), len(one.samples)):
                continue
            if _same_order(other, one) and not _asked_for(passes, other, one):
                best = other
        if best is not None:
            yield best, one
        alike.append(one)


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


def _log_chance(repetitions: Sequence[tuple[Pass, Pass]], ranks: int) -> float:
    """Return the logarithm of the chance that passes agree although they are shuffled anew.

    The ranks' shards are cut from one permutation of the whole data set; where its length is unknown, the samples
    seen are all that is counted on. The later the pass, the more pairs there were that could have agreed by chance.
    """
    compared = [min(len(first.samples), len(second.samples)) for first, second in repetitions]
    length = max(repetitions[0][0].fact("length") or 0, *compared)
    orders = lgamma(length + 1) - lgamma(max(length - sum(compared), 0) + 1)
    return log(ranks * max(repetitions[0][1].number, 1) ** 2) - orders


def _reason(first: Pass, second: Pass) -> str:
    before, after = first.fact("epoch"), second.fact("epoch")
    if before is None or after is None:
        return "its generator is seeded anew for each pass"
    if before == after:
        return f"its epoch stayed at {after}, so set_epoch was not called"
    return f"although its epoch moved from {before} to {after}, which does not reach the sampler that shuffles"
