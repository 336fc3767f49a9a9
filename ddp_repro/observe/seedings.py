"""Sees the global generators being seeded while a batch is fetched.

A generator that is seeded with one number for each sample is in one state after every batch, as one is that nobody
draws from: that it was seeded tells them apart. What seeds a generator object itself is not seen.
"""

import functools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from ddp_repro.observe.digest import bytes_digest
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.rng_states import process_states

SEEDS: Final = "seeds"
"""Spec of the digest over the numbers that a generator was seeded with in one batch."""


class Fetch:
    """The seedings of one fetch, by the generator's name."""

    def __init__(self) -> None:
        self.before: dict[str, bytes] = {}
        """The state of each generator (digest, 16 bytes) when it was seeded first."""
        self._seeds: dict[str, list[str]] = {}

    def note(self, name: str, seed: str) -> None:
        """Take note that a generator is about to be seeded."""
        if name not in self.before:
            self.before[name] = dict(process_states())[name]
        self._seeds.setdefault(name, []).append(seed)

    def told(self) -> list[tuple[str, bytes, int]]:
        """Return name, digest (16 bytes) over the seeds, and number of seedings of each generator."""
        return [
            (name, bytes_digest("\n".join(seeds).encode("utf-8", "surrogatepass"), SEEDS), len(seeds))
            for name, seeds in self._seeds.items()
        ]


_under_way: Final[list[Fetch]] = []


@contextmanager
def fetching() -> Iterator[Fetch]:
    """Gather the seedings of a fetch while the context lasts."""
    fetch = begin_fetch()
    try:
        yield fetch
    finally:
        end_fetch(fetch)


def begin_fetch() -> Fetch:
    """Gather seedings from now on."""
    fetch = Fetch()
    _under_way.append(fetch)
    return fetch


def end_fetch(fetch: Fetch) -> None:
    """Gather none any more."""
    if fetch in _under_way:
        _under_way.remove(fetch)


def attach() -> Detach:
    """Watch the functions that seed global generators; a worker that is forked from here on has them watched too."""
    places: list[tuple[str, Any, str]] = [
        ("python", random, "seed"),
        ("torch", torch, "manual_seed"),
        ("torch", torch.random, "manual_seed"),
    ]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        places.append(("numpy", numpy_random, "seed"))
    with ExitStack() as restores:
        for name, owner, attribute in places:
            restores.callback(replace_attribute(owner, attribute, functools.partial(_watched, name)))
        return restores.pop_all().close


def _watched(name: str, seed: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(seed, "is_watched_seed", False):
        return seed

    @functools.wraps(seed)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if _under_way:
            _under_way[-1].note(name, ", ".join(map(_told, (*args, *kwargs.values()))))
        return seed(*args, **kwargs)

    watched.is_watched_seed = True  # type: ignore[attr-defined]
    return watched


def _told(seed: Any) -> str:
    return seed.tobytes().hex() if hasattr(seed, "tobytes") else repr(seed)
