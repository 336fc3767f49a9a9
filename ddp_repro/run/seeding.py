"""Derives every random stream of a run from one root seed, and seeds the global generators with one of them.

A stream is named by a path of integers, never by ``seed + rank``: sums collide, so that rank 1 of seed 0 would repeat
rank 0 of seed 1. ``numpy.random.SeedSequence`` hashes the path into the seed.
"""

import hashlib
import random
from enum import IntEnum

import numpy as np
import torch

from ddp_repro.errors import ReproError

_SEED_BITS = 64


class Stream(IntEnum):
    """What a stream of random numbers is for. The numbers are part of every derived seed: never renumber them."""

    MODEL = 0
    TRAINING = 1
    SHUFFLE = 2
    WORKERS = 3
    SAMPLES = 4
    COLLATE = 5
    NAMED = 6


def checked_seed(seed: int) -> int:
    """Return `seed` as a plain int; raise `ReproError` unless it is a whole number of 0 to 2**64 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= int(seed) < 2**_SEED_BITS:
        raise ReproError(f"seed={seed!r} is not a whole number from 0 to 2**64 - 1", hint="use seed=0, for example")
    return int(seed)


def seed_sequence(  # noqa: PLR0913 - the path of a stream, every part of it named
    seed: int, stream: Stream, *, shard: int = 0, worker: int = 0, epoch: int = 0, index: int | None = None
) -> np.random.SeedSequence:
    """Return the seed sequence of one stream.

    `shard` is the logical data-parallel shard (equal to the rank unless a rank holds several), `worker` the loader's
    worker, `index` the sample. Two different paths give unrelated numbers; the same path gives the same ones anywhere.
    """
    path = (int(stream), shard, worker, epoch)
    return np.random.SeedSequence(entropy=seed, spawn_key=path if index is None else (*path, index))


def named_sequence(seed: int, name: str, *, shard: int = 0, epoch: int = 0) -> np.random.SeedSequence:
    """Return the seed sequence of the stream that a user calls `name` (hashed stably, not by ``hash()``)."""
    words = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), dtype="<u4")
    return np.random.SeedSequence(
        entropy=seed, spawn_key=(int(Stream.NAMED), shard, 0, epoch, *(int(word) for word in words))
    )


def torch_seed(sequence: np.random.SeedSequence) -> int:
    """Return the 64-bit seed for a torch generator; of it a CPU keeps the low 32 bits, a GPU all."""
    return int(sequence.generate_state(1, np.uint64)[0])


# As they are before anything watches them: what is seeded here depends on the sample, and that once a sample.
_seed_python = random.seed
_seed_numpy = np.random.seed


def seed_host(sequence: np.random.SeedSequence) -> None:
    """Seed Python's, NumPy's and torch's global CPU generators; the devices' generators are left alone.

    Runs once a sample, so it avoids ``torch.manual_seed``, which visits every device (140 us against 1 us).
    """
    words = sequence.generate_state(10)
    _seed_python(int.from_bytes(words[:4].tobytes(), "little"))
    _seed_numpy(words[4:8])
    torch.default_generator.manual_seed(int(words[8]) << 32 | int(words[9]))


def seed_process(sequence: np.random.SeedSequence) -> None:
    """Seed Python's, NumPy's and torch's global generators, torch's on every device."""
    seed_host(sequence)
    torch.manual_seed(torch.default_generator.initial_seed())


def seed_model(seed: int) -> None:
    """Seed this process for building the model: the same stream on every rank. Call it before the model is built."""
    seed_process(seed_sequence(checked_seed(seed), Stream.MODEL))


def seed_training(seed: int, shard: int) -> None:
    """Seed this process for training, dropout and the like: one stream per shard. Call it after the model is built."""
    seed_process(seed_sequence(checked_seed(seed), Stream.TRAINING, shard=shard))
