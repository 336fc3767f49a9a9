"""Whether the ranks' shards of a pass are disjoint and complete."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass
from ddp_repro.judge.wording import counted, listed, numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How one pass was shared among the ranks, in samples.

    ``twice`` counts deliveries of a sample beyond its first, ``never`` the samples that no rank got (0 where not every
    rank exhausted the pass, or the length of the data set is unknown). ``padding`` and ``left_out`` are how many of
    those filling up shards and dropping incomplete batches explain.
    """

    shards: tuple[Pass, ...]
    twice: int
    never: int
    padding: int
    left_out: int

    @property
    def is_broken(self) -> bool:
        """Whether shards overlap or miss samples beyond what is explained."""
        return self.twice > self.padding or self.never > self.left_out

    @property
    def is_evaluation(self) -> bool:
        """Whether no rank took a loss within the pass."""
        return all(shard.trains is False for shard in self.shards)


def shard_findings(launch: int, passes: Sequence[Pass], world_size: int) -> tuple[list[Finding], list[str]]:
    """Return what is wrong with the shards of a launch (one finding a loader), and notes on what is harmless."""
    findings: list[Finding] = []
    notes: dict[str, None] = {}
    for loader, groups in _by_loader(passes).items():
        sharings = []
        for group in groups:
            sharing = _shared(group, world_size)
            if isinstance(sharing, Sharing):
                sharings.append(sharing)
            elif sharing:
                notes[f"{loader}: {sharing}"] = None
        found = [_broken(launch, loader, sharings), _padded_evaluation(launch, loader, sharings)]
        findings += [one for one in found if one is not None]
        notes |= dict.fromkeys(_harmless(loader, sharings))
    return findings, list(notes)


def _by_loader(passes: Sequence[Pass]) -> Mapping[str, list[list[Pass]]]:
    """Return for each loader its sharded passes, those of all ranks with the same number together."""
    groups: dict[str, dict[int, list[Pass]]] = defaultdict(lambda: defaultdict(list))
    for one in passes:
        if (one.fact("num_replicas") or 1) > 1 and one.clear and one.number >= 0:
            groups[one.loader][one.number].append(one)
    return {loader: [numbers[number] for number in sorted(numbers)] for loader, numbers in groups.items()}


def _shared(group: Sequence[Pass], world_size: int) -> Sharing | str:
    """Return how the ranks share a pass, or why that was not judged.

    The reason is empty where not every rank has come so far, and where the loader has no indices.
    """
    if len({one.fact("num_replicas") for one in group}) > 1 or len({one.fact("length") for one in group}) > 1:
        return "its number of shards or its length differs between ranks, so its shards were not judged"
    shards = _one_a_shard(group, world_size)
    if isinstance(shards, str):
        return shards
    if not any(len(shard.samples) for shard in shards):
        return ""
    if any(len(np.unique(shard.samples)) < len(shard.samples) for shard in shards):
        return "it delivers samples again within a shard (drawn with replacement?), so its shards were not judged"
    return _sharing(shards)


def _one_a_shard(group: Sequence[Pass], world_size: int) -> tuple[Pass, ...] | str:
    """Return one pass a shard: ranks that share a shard on purpose (tensor parallel ones) count once."""
    count = group[0].fact("num_replicas")
    assert count is not None, "only sharded passes are grouped"
    if count > world_size or (count < world_size and any(one.fact("sampler_rank") is None for one in group)):
        return f"it has {count} shards in a world of {world_size}, so its shards were not judged"
    if count == world_size:
        return tuple(group) if len(group) == world_size else ()
    by_shard = {one.fact("sampler_rank"): one for one in reversed(group)}
    return tuple(by_shard.values()) if len(by_shard) == count else ()


def _sharing(shards: tuple[Pass, ...]) -> Sharing:
    length = shards[0].fact("length")
    delivered = np.concatenate([shard.samples for shard in shards])
    distinct = len(np.unique(delivered))
    never = 0 if length is None else max(length - distinct, 0)
    left_out = _left_out(shards, length)
    exhausted = all(shard.whole for shard in shards)
    return Sharing(
        shards=shards,
        twice=len(delivered) - distinct,
        never=never if exhausted else 0,
        padding=_padding(shards, length, is_complete=length is not None and never <= left_out),
        left_out=left_out,
    )


def _left_out(shards: Sequence[Pass], length: int | None) -> int:
    """Return how many samples a clean pass may leave out: those of incomplete shards and of incomplete batches."""
    if length is None:
        return 0
    return length % len(shards) + sum(_dropped_by_loader(shard, length, len(shards)) for shard in shards)


def _dropped_by_loader(shard: Pass, length: int, count: int) -> int:
    """Return how many samples of its shard a rank did not get because an incomplete last batch is dropped.

    Whether the sampler or the loader drops is not told apart, so its shard had either of two sizes.
    """
    if shard.fact("drop_last") == 0:
        return 0
    delivered, batches = len(shard.samples), shard.batches
    incomplete = len(batches) == 0 or bool((batches == batches[0]).all() and length // count - delivered < batches[0])
    return max(-(-length // count) - delivered, 0) if incomplete else 0


def _padding(shards: Sequence[Pass], length: int | None, *, is_complete: bool) -> int:
    """Return how many samples a clean pass may deliver twice.

    Filling up shards to equal length takes up to one a shard less one; some samplers fill up whole batches. Neither
    leaves a sample out, which tells it from overlap. Before a shard's last sample nothing is filled up.
    """
    count = len(shards)
    if length is None:
        return count - 1
    size = -(-length // count)
    at_end = [shard.whole or len(shard.samples) >= size for shard in shards]
    if is_complete and all(at_end):
        return count * max(int(shard.batches.max(initial=1)) for shard in shards) - 1
    return count * size - length if any(at_end) else 0


def _broken(launch: int, loader: str, sharings: Sequence[Sharing]) -> Finding | None:
    broken = [sharing for sharing in sharings if sharing.is_broken]
    if not broken:
        return None
    first = broken[0]
    ranks, reason = _suspects(first.shards)
    counts = [f"{counted(first.twice, 'sample')} delivered twice"] if first.twice else []
    counts.append(
        f"{counted(first.never, 'sample')} of {first.shards[0].fact('length'):,} never" if first.never else ""
    )
    more = len(broken) - 1
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=min(shard.step for shard in first.shards),
        ranks=ranks,
        phase="data",
        name=f"{loader}.index",
    )
    gaps = {
        "loader": loader,
        "pass": str(first.shards[0].number),
        "counts": listed(counts),
        "reason": f" ({reason})" if reason else "",
    }
    return finding("shards-overlap", place, gaps, detail=f"the same in {counted(more, 'later pass')}" if more else "")


def _suspects(shards: Sequence[Pass]) -> tuple[tuple[int, ...], str]:
    """Return the ranks concerned and what their samplers say of the reason."""
    ranks = tuple(shard.rank for shard in shards)
    epochs = Counter(shard.fact("epoch") for shard in shards)
    if len(epochs) > 1:
        (usual, count), *_ = epochs.most_common()
        odd = tuple(shard.rank for shard in shards if shard.fact("epoch") != usual)
        told = listed(f"{epoch} on {count}" for epoch, count in epochs.items())
        return (odd if 2 * count > len(shards) else ranks), f"the samplers' epochs differ: {told} of the ranks"
    places = Counter(shard.fact("sampler_rank") for shard in shards)
    if None not in places and len(places) < len(shards):
        twice = [place for place, count in places.items() if count > 1]
        odd = tuple(shard.rank for shard in shards if shard.fact("sampler_rank") in twice)
        return odd, f"{numbered('rank', odd)} take the same shard"
    if any(shard.fact("shuffle") == 1 for shard in shards):
        return ranks, "the ranks shuffle differently: is the sampler seeded by rank?"
    return ranks, ""


def _padded_evaluation(launch: int, loader: str, sharings: Sequence[Sharing]) -> Finding | None:
    padded = [sharing for sharing in sharings if sharing.is_evaluation and sharing.twice and not sharing.is_broken]
    if not padded:
        return None
    first = padded[0]
    place = Place(
        witness="invariants",
        severity="warning",
        launches=(launch,),
        step=first.shards[0].step,
        ranks=tuple(shard.rank for shard in first.shards),
        phase="data",
        name=f"{loader}.index",
    )
    counts = f"{counted(first.twice, 'sample')} {'is' if first.twice == 1 else 'are'} delivered twice"
    return finding(
        "evaluation-padding", place, {"loader": loader, "pass": str(first.shards[0].number), "counts": counts}
    )


def _harmless(loader: str, sharings: Sequence[Sharing]) -> list[str]:
    clean = [sharing for sharing in sharings if not sharing.is_broken]
    padded = [sharing.twice for sharing in clean if sharing.twice and not sharing.is_evaluation]
    missed = [sharing.never for sharing in clean if sharing.never]
    notes = []
    if padded:
        notes.append(f"{loader}: {counted(max(padded), 'sample')} a pass delivered twice to fill up the shards")
    if missed:
        notes.append(f"{loader}: {counted(max(missed), 'sample')} a pass left out with incomplete shards or batches")
    return notes
