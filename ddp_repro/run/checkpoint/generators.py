"""The states of random number generators: the process-wide ones, and those that a training keeps for itself."""

import random
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from ddp_repro.errors import ReproError
from ddp_repro.observe.torch_internals import device_generators

_CPU: Final = "torch"


def process_states() -> dict[str, Any]:
    """Return the state of each global generator: Python, NumPy, torch, each initialised CUDA device. Draws nothing."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        _CPU: torch.get_rng_state(),
        **{name: generator.get_state() for name, generator in device_generators()},
    }


def unusable_states(states: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what of ``states`` (as ``process_states`` gives them) has no generator in this process.

    Each with the name by which that can be allowed, and in words.
    """
    here = {"python", "numpy", _CPU, *(name for name, _ in device_generators())}
    missing = [name for name in states if name not in here]
    return [
        (f"rng.{name}", f"the generator of {name} is not in use in this process (allow=['rng.{name}'] goes without it)")
        for name in missing
    ]


def restore_process_states(states: Mapping[str, Any]) -> None:
    """Put the global generators into the states that ``process_states`` gave."""
    devices = dict(device_generators())
    for name, state in states.items():
        if name == "python":
            random.setstate(state)
        elif name == "numpy":
            np.random.set_state(state)
        elif name == _CPU:
            torch.set_rng_state(state)
        elif name in devices:
            devices[name].set_state(state)


def is_generator(thing: object) -> bool:
    """Tell whether ``thing`` is a random number generator of torch, NumPy or Python."""
    return isinstance(thing, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random))


def generator_state(generator: Any) -> Any:
    """Return the state of a generator (see ``is_generator``). Raises ``ReproError`` for one that has none."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, random.SystemRandom):
        raise ReproError("random.SystemRandom has no state that could be saved", hint="use random.Random(seed)")
    return generator.getstate()


def set_generator_state(generator: Any, state: Any) -> None:
    """Put a generator into the state that ``generator_state`` gave for it."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)
