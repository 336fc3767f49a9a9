"""How the ranks share the samples of one pass, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddp_repro.judge.passes import Pass


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


def shared(group: Sequence[Pass], world_size: int) -> Sharing | str:
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
