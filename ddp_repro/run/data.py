"""Loaders whose batches depend on the seed, the epoch and the rank, and not on the workers that fetch them."""

from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ddp_repro.errors import ReproError
from ddp_repro.run.reseeding import SampleSeeded, SeededCollate, WorkerSeeded
from ddp_repro.run.root_seed import root_seed
from ddp_repro.run.sampler import EpochSampler
from ddp_repro.run.seeding import Stream, checked_seed, seed_sequence, torch_seed

_T = TypeVar("_T")
_OURS = ("sampler", "batch_sampler")


def make_loader(
    dataset: Dataset[_T],
    *,
    shuffle: bool = True,
    seed: int | None = None,
    reseed: str = "sample",
    **dataloader_options: Any,
) -> DataLoader[_T]:
    """Return a loader over this rank's share of `dataset`, for training.

    The order of samples comes from (seed, epoch) and the epoch advances by itself. `reseed` says what a data set that
    draws from Python's, NumPy's or torch's global generator gets: ``"sample"`` a stream for each sample, so that any
    number of workers gives the same bits; ``"worker"`` a stream for each (shard, worker, epoch), the classic way.
    `seed` is that of `seed_everything` unless given. `dataloader_options` go to `torch.utils.data.DataLoader`;
    ``drop_last=True`` drops the incomplete batch and the samples that do not divide among the ranks. Iterating draws
    nothing from the global generators. Raises `ReproError` for an empty or iterable data set, an own sampler, another
    `reseed`, or no seed.
    """
    _check(dataset, reseed, dataloader_options)
    seed = root_seed() if seed is None else checked_seed(seed)
    options = dict(dataloader_options)
    sampler = EpochSampler(dataset, seed=seed, shuffle=shuffle, drop_last=bool(options.get("drop_last", False)))  # type: ignore[arg-type]
    if "generator" not in options:
        # torch draws the workers' base seed from here; without it, from the training stream.
        base = seed_sequence(seed, Stream.WORKERS, shard=sampler.rank, worker=_BASE_SEED)
        options["generator"] = torch.Generator().manual_seed(torch_seed(base))
    if reseed == "worker":
        seeded: Dataset[_T] = WorkerSeeded(dataset, seed, sampler.rank)
    else:
        seeded = SampleSeeded(dataset, seed)
        if options.get("collate_fn") is not None:
            options["collate_fn"] = SeededCollate(options["collate_fn"], seed)
    return DataLoader(seeded, sampler=sampler, **options)


_BASE_SEED = 2**32 - 1  # stands where a worker's number stands; no loader has so many


def _check(dataset: object, reseed: str, options: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ReproError(
            "make_loader needs a data set with a length and indices, not an iterable one",
            hint="give it a map-style data set, or split the iterable one by rank and worker yourself in a DataLoader",
        )
    if reseed not in ("sample", "worker"):
        raise ReproError(f"reseed={reseed!r} is not known", hint="use reseed=sample or reseed=worker")
    own = [name for name in _OURS if options.get(name) is not None]
    if own:
        raise ReproError(
            f"make_loader makes the sampler itself and was given {own[0]}=…",
            hint="leave it out, or use torch.utils.data.DataLoader for a sampler of your own",
        )
