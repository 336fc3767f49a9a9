"""Seedings of the global generators are seen while a batch is fetched, and nothing stays behind."""

import random

import numpy as np
import torch

from ddp_repro.observe import seedings
from ddp_repro.observe.rng_states import process_states


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(np.array([number, 1]))
    torch.random.manual_seed(seed=number)


def test_seedings_within_a_fetch_are_told_with_the_state_before() -> None:
    before = (random.seed, np.random.seed, torch.manual_seed, torch.random.manual_seed)
    detach = seedings.attach()
    seed(1)
    states = dict(process_states())
    told, before_first = [], None
    for number in (1, 1, 2):
        with seedings.fetching() as fetch:
            seed(number)
            torch.rand(3)
            seed(number)
        told.append(fetch.told())
        before_first = before_first or fetch.before
        assert [(name, count) for name, _, count in told[-1]] == [("python", 2), ("numpy", 2), ("torch", 2)]
    assert before_first == {name: states[name] for name in ("python", "numpy", "torch")}
    assert told[0] == told[1]
    assert all(one[1] != other[1] for one, other in zip(told[1], told[2], strict=True))
    detach()
    assert (random.seed, np.random.seed, torch.manual_seed, torch.random.manual_seed) == before


def test_what_was_imported_while_it_was_watched_still_seeds() -> None:
    detach = seedings.attach()
    kept = torch.manual_seed
    again = seedings.attach()  # as in a worker that was forked from a process that watches
    assert torch.manual_seed is kept
    again()
    detach()
    kept(5)
    assert torch.initial_seed() == 5
