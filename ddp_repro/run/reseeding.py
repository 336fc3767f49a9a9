"""Gives every sample, or every worker, random numbers that depend on what it is and not on what was drawn before."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from ddp_repro.run.sampler import EpochIndex
from ddp_repro.run.seeding import Stream, seed_host, seed_sequence


class SeededSamples(list[Any]):
    """The samples of one batch, with the key that its collation draws from."""

    def __init__(self, samples: list[Any], first: EpochIndex) -> None:
        super().__init__(samples)
        self.first = first


class _Wrapped(Dataset[Any]):
    """A data set around another one, whose attributes can be read through it."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __getattr__(self, name: str) -> Any:
        # Double underscores stay ours: torch asks for __getitems__, pickle for __getstate__.
        if name == "dataset" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)


class SampleSeeded(_Wrapped):
    """A data set whose every sample draws from (seed, epoch, index), whoever fetches it and in whatever order.

    Python's, NumPy's and torch's global CPU generators are seeded before each sample. In a worker they stay as the
    sample left them; in the main process, where they belong to training, they are put back after each batch.
    """

    def __getitem__(self, index: int) -> Any:
        with _main_streams_kept():
            return self._sample(index)

    def __getitems__(self, indices: Sequence[int]) -> SeededSamples:
        """Return the samples of a batch; torch's fetcher calls this, and hands the result to the collation."""
        with _main_streams_kept():
            return SeededSamples([self._sample(index) for index in indices], _key(indices[0]))

    def _sample(self, index: int) -> Any:
        key = _key(index)
        seed_host(seed_sequence(self.seed, Stream.SAMPLES, epoch=key.epoch, index=int(key)))
        return self.dataset[int(key)]


class SeededCollate:
    """Collates a batch, drawing from (seed, epoch, first index): mixing samples is augmentation as well."""

    def __init__(self, collate: Callable[[list[Any]], Any], seed: int) -> None:
        self.collate = collate
        self.seed = seed

    def __call__(self, batch: Any) -> Any:
        """Return what `collate` makes of the samples."""
        if not isinstance(batch, SeededSamples):
            return self.collate(batch)
        key = batch.first
        with _main_streams_kept():
            seed_host(seed_sequence(self.seed, Stream.COLLATE, epoch=key.epoch, index=int(key)))
            return self.collate(list(batch))


class WorkerSeeded(_Wrapped):
    """A data set whose workers draw from (seed, shard, worker, epoch), each a stream of its own from pass to pass.

    In the main process (0 workers) nothing is seeded: samples draw from the training stream, as torch has it.
    """

    def __init__(self, dataset: Any, seed: int, shard: int) -> None:
        super().__init__(dataset, seed)
        self.shard = shard
        self._pass: tuple[int, int] | None = None

    def __getitem__(self, index: int) -> Any:
        key = _key(index)
        worker = get_worker_info()
        if worker is not None and self._pass != (key.epoch, key.passed):
            # Here and not in worker_init_fn, which runs once in the life of a persistent worker.
            self._pass = (key.epoch, key.passed)
            seed_host(seed_sequence(self.seed, Stream.WORKERS, shard=self.shard, worker=worker.id, epoch=key.epoch))
        return self.dataset[int(key)]


def _key(index: int) -> EpochIndex:
    return index if isinstance(index, EpochIndex) else EpochIndex(index, epoch=0, passed=0)


@contextmanager
def _main_streams_kept() -> Iterator[None]:
    if get_worker_info() is not None:
        yield
        return
    python, array, tensor = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        torch.default_generator.set_state(tensor)
