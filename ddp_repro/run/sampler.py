"""The order in which samples are visited: a distributed sampler whose epoch cannot be forgotten."""

from collections.abc import Iterator, Sized
from itertools import cycle, islice
from typing import Any, Self

import torch
from torch.utils.data import DistributedSampler

from ddp_repro.errors import ReproError
from ddp_repro.run.placement import rank_and_world_size
from ddp_repro.run.seeding import Stream, checked_seed, seed_sequence, torch_seed


class EpochIndex(int):
    """A sample's index that also says which epoch and which pass over the loader it belongs to.

    The index is the only thing that reaches a loader's worker for every sample, so the epoch travels with it:
    persistent workers hold a copy of the data set that nobody can tell a new epoch.
    """

    epoch: int
    passed: int

    def __new__(cls, index: int, epoch: int, passed: int) -> Self:
        """Make the index `index` of `epoch`, in the pass that began after `passed` others."""
        made = super().__new__(cls, index)
        made.epoch = epoch
        made.passed = passed
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochIndex, (int(self), self.epoch, self.passed)


class EpochSampler(DistributedSampler[int]):
    """A `DistributedSampler` whose epoch advances by itself with every pass after the first.

    `set_epoch` is obeyed for the pass that follows it, so scripts that call it and scripts that forget it agree.
    `epoch` is the epoch of the pass in progress. The order is a function of (seed, epoch) alone, the same on all
    ranks; each rank takes every `num_replicas`-th sample, padded from the front as `DistributedSampler` does, or with
    the tail dropped if `drop_last`. Raises `ReproError` where a rank would get no sample.
    """

    def __init__(self, dataset: Sized, *, seed: int, shuffle: bool = True, drop_last: bool = False) -> None:
        if len(dataset) == 0:
            raise ReproError("the data set is empty", hint="check the path and the filter that it is made from")
        rank, world_size = rank_and_world_size()
        if drop_last and len(dataset) < world_size:
            raise ReproError(
                f"with drop_last, {len(dataset)} samples leave none for each of {world_size} ranks",
                hint="use fewer ranks, more data, or drop_last=False",
            )
        super().__init__(
            dataset,  # type: ignore[arg-type]  # torch asks for a Dataset and uses its length alone
            num_replicas=world_size,
            rank=rank,
            shuffle=shuffle,
            seed=checked_seed(seed),
            drop_last=drop_last,
        )
        self._length = len(dataset)
        self._passes = 0
        self._is_drawn = False
        self._epoch_was_set = False
        self._left_out = 0
        self.passed_over = 0
        """How many samples of this rank the pass in progress began after."""

    def leave_out(self, samples: int) -> None:
        """Have the next pass begin after so many samples of this rank: a training that goes on has trained on them."""
        self._left_out = samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is; passes after it count on from there."""
        super().set_epoch(epoch)
        self._epoch_was_set = True

    def __iter__(self) -> Iterator[int]:
        # Not a generator function: the epoch advances when the pass begins, not at its first sample. An iterator that
        # nothing was drawn from is no pass: with workers and batch_size=None torch makes two at the first pass.
        if self._is_drawn:
            self._passes += 1
            if not self._epoch_was_set:
                self.epoch += 1
        self._is_drawn = self._epoch_was_set = False
        return self._drawing(self.epoch, self._passes)

    def _drawing(self, epoch: int, passed: int) -> Iterator[int]:
        self.passed_over, self._left_out = self._left_out, 0
        self._is_drawn = self.passed_over > 0  # also where nothing is left of it
        for index in islice(self._share(self._order(epoch)), self.passed_over, None):
            self._is_drawn = True
            yield EpochIndex(index, epoch, passed)

    def _order(self, epoch: int) -> list[int]:
        if not self.shuffle:
            return list(range(self._length))
        seed = torch_seed(seed_sequence(self.seed, Stream.SHUFFLE, epoch=epoch))
        return torch.randperm(self._length, generator=torch.Generator().manual_seed(seed)).tolist()

    def _share(self, order: list[int]) -> list[int]:
        whole = islice(cycle(order), self.total_size)
        return list(islice(whole, self.rank, None, self.num_replicas))
