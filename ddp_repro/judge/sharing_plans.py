"""Samplers that do not give each sample to one rank once, and may be meant to: what can be told of it, and what not."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass
from ddp_repro.judge.sharing import Sharing
from ddp_repro.judge.wording import counted

_ONCE_EACH: Final = ("DistributedSampler", "EpochSampler")
"""Classes that promise that each sample is delivered once; where theirs do not, it is a fault."""


_REPEATED, _PARTIAL = "shards-repeated", "shards-partial"


def plan_of(loader: str, sharing: Sharing) -> str:
    """Return the cause of a warning where a broken pass may be meant so; empty where it is a fault.

    Copies of each sample may be meant for several ranks, or a pass for a part of the data set. Not where the class of
    the sampler promises otherwise, nor where the samplers of the ranks are not set up for one pass.
    """
    shards = sharing.shards
    places = [shard.fact("sampler_rank") for shard in shards]
    apart = len({shard.fact("epoch") for shard in shards}) > 1 or len(set(places)) < len(places)
    if apart or not sharing.is_broken or loader.partition("[")[0] in _ONCE_EACH:
        return ""
    if sharing.twice <= sharing.padding:
        return _PARTIAL
    return _REPEATED if _repeats(shards) else ""


def planned_finding(launch: int, loader: str, sharings: Sequence[Sharing]) -> Finding | None:
    """Return a warning where it cannot be told whether shards overlap, or leave samples out, on purpose."""
    plans = {id(one): plan_of(loader, one) for one in sharings}
    cause = next((plan for plan in plans.values() if plan), "")
    if not cause:
        return None
    planned = [one for one in sharings if plans[id(one)] == cause]
    first = planned[0]
    place = Place(
        witness="invariants",
        severity="warning",
        launches=(launch,),
        step=min(shard.step for shard in first.shards),
        ranks=tuple(shard.rank for shard in first.shards),
        phase="data",
        name=f"{loader}.index",
    )
    gaps = {
        "loader": loader,
        "pass": str(first.shards[0].number),
        "times": str(_repeats(first.shards)),
        "never": f"{counted(first.never, 'sample')} of {first.shards[0].fact('length') or 0:,}",
    }
    always = cause == _PARTIAL and _same_samples([one.shards for one in planned])
    return finding(cause, place, gaps, detail="the same ones are left out in each pass" if always else "")


def _repeats(shards: Sequence[Pass]) -> int:
    """Return how often each sample of a pass is delivered, where all are equally often and more than once; else 0.

    Ranks that shuffle on their own meet by chance, some samples twice and some never. Repeated augmentation deals the
    copies of each sample out to the ranks; where the pass is cut, a few have fewer. Every rank delivering the whole
    data set is no plan.
    """
    counts = np.unique(np.concatenate([shard.samples for shard in shards]), return_counts=True)[1]
    most = int(counts.max(initial=0))
    odd = int((counts != most).sum())
    length = shards[0].fact("length")
    is_whole = length is not None and all(len(shard.samples) >= length for shard in shards)
    return 0 if most < 2 or is_whole or odd > len(shards) or len(counts) <= odd + 2 * len(shards) else most


def _same_samples(passes: Sequence[Sequence[Pass]]) -> bool:
    """Return whether passes, two or more, all deliver the same samples and so leave the same ones out."""
    delivered = [np.unique(np.concatenate([shard.samples for shard in shards])) for shards in passes]
    return len(delivered) > 1 and all(np.array_equal(delivered[0], other) for other in delivered[1:])
