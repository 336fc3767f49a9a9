"""Digests of the states of random number generators. Reading one draws nothing and moves no state."""

import ctypes
import functools
import random
import struct
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from xxhash import xxh3_128_digest

from ddp_repro.observe.digest import bytes_digest, tensor_digest
from ddp_repro.observe.torch_internals import device_generators
from ddp_repro.trace.schema import UNDRAWN

SPEC: Final = "state"
_MT19937_WORDS: Final = ctypes.c_uint32 * 625  # 624 words of state and the place among them
_PYTHON_STATE: Final = struct.Struct("<625I")
_DEPTH: Final = 4  # how far from the data set a private generator is looked for …
_THINGS: Final = 512  # … among so many objects …
_ITEMS: Final = 16  # … and so many items of one container


def process_states() -> list[tuple[str, bytes]]:
    """Return name and digest (16 bytes) of each global generator: Python, NumPy where imported, torch, each device."""
    states = [("python", _python_state(random.getstate()))]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        states.append(("numpy", _global_numpy.digest(numpy_random)))
    states.append(("torch", tensor_digest(torch.get_rng_state())))
    states.extend((name, tensor_digest(generator.get_state())) for name, generator in device_generators())
    return states


class DrawnStates:
    """The global generators' states, as far as they tell something: since the watch began they moved.

    What nobody seeds has another state in every launch, which is no fault where nobody draws from it: until a generator
    first moved (it was drawn from, or seeded) its state is ``UNDRAWN``, equal for all. One that is not there from the
    beginning (its library was not imported yet, its device not in use) tells its state at once.
    """

    def __init__(self) -> None:
        self._unmoved = dict(process_states())

    def states(self) -> list[tuple[str, bytes]]:
        """Return name and digest (16 bytes) of each generator's state, or ``UNDRAWN``."""
        states = process_states()
        for name, digest in states:
            if name in self._unmoved and self._unmoved[name] != digest:
                del self._unmoved[name]
        return [(name, UNDRAWN if name in self._unmoved else digest) for name, digest in states]


def _python_state(state: tuple[Any, ...]) -> bytes:
    version, words, gauss = state
    return bytes_digest(_PYTHON_STATE.pack(*words) + repr((version, gauss)).encode(), SPEC)


def _numpy_state(state: dict[str, Any]) -> bytes:
    return bytes_digest(b"".join(_encoded(state)), SPEC)


class _GlobalNumpy:
    """The state of NumPy's global generator, read in full only where it can have changed.

    NumPy builds the state that it tells word by word (30 µs), so the words are looked at where they lie first. A normal
    number that is kept for the next draw is not among them: it comes with a draw, which changes the words, and while
    there is one the state is read in full. (Unseen is only a restored state of the very same words with such a number.)
    """

    def __init__(self) -> None:
        self._known: tuple[bytes, bytes] | None = None

    def digest(self, numpy_random: Any) -> bytes:
        """Return the digest (16 bytes) of the state of the generator behind ``numpy.random``'s functions."""
        words = self._words(numpy_random)
        if self._known is not None and words is not None and self._known[0] == words:
            return self._known[1]
        state = numpy_random.get_state(legacy=False)
        digest = _numpy_state(state)
        self._known = (words, digest) if words is not None and state.get("has_gauss") == 0 else None
        return digest

    @staticmethod
    def _words(numpy_random: Any) -> bytes | None:
        generator = global_numpy_generator(numpy_random)._bit_generator  # noqa: SLF001 -- the public way makes a new generator
        if type(generator) is not numpy_random.MT19937:
            return None
        return xxh3_128_digest(_MT19937_WORDS.from_address(generator.ctypes.state_address))


_global_numpy: Final = _GlobalNumpy()


def _encoded(state: dict[str, Any]) -> Iterator[bytes]:
    for key, value in state.items():
        yield key.encode()
        if isinstance(value, dict):
            yield from _encoded(value)
        elif hasattr(value, "tobytes"):
            yield value.tobytes()
        else:
            yield repr(value).encode()


@dataclass(frozen=True, slots=True)
class PrivateGenerator:
    """Where a data set keeps a generator of its own: ``owner[key]``, known as ``path``."""

    path: str
    owner: Any
    key: Any

    def state(self) -> bytes | None:
        """Return the digest (16 bytes) of its state; ``None`` where no generator is there any more."""
        try:
            generator = self.owner[self.key]
        except (KeyError, IndexError):
            return None
        return _generator_state(generator)


def _generator_state(generator: Any) -> bytes | None:
    kind = _kind(generator)
    if kind == "python":
        return _python_state(generator.getstate())
    if kind == "torch":
        return tensor_digest(generator.get_state())
    if kind == "numpy":
        return _numpy_state(generator.bit_generator.state)
    return _numpy_state(generator.get_state(legacy=False)) if kind == "numpy legacy" else None


def _kind(thing: Any) -> str | None:
    """Return what sort of generator ``thing`` is; ``None`` for the process-wide ones, which are observed anyway."""
    if issubclass(type(thing), random.Random):
        # SystemRandom has no state.
        return None if thing is _python_global() or isinstance(thing, random.SystemRandom) else "python"
    if issubclass(type(thing), torch.Generator):
        return None if thing is torch.default_generator else "torch"
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is None:
        return None
    if issubclass(type(thing), numpy_random.Generator):
        return "numpy"
    legacy = issubclass(type(thing), numpy_random.RandomState) and thing is not global_numpy_generator(numpy_random)
    return "numpy legacy" if legacy else None


def global_numpy_generator(numpy_random: Any) -> Any:
    """Return the ``RandomState`` whose bound methods NumPy's global functions are."""
    return numpy_random.random_sample.__self__


def _python_global() -> object:
    return random.random.__self__  # type: ignore[attr-defined]  # the instance whose bound method it is


class PrivateGenerators:
    """The generators that one data set keeps, as they are found in the course of a pass."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._found: list[PrivateGenerator] = []
        self._looks = 2

    def look(self) -> None:
        """Look for generators before a batch: before the first two of a pass, as the first sample may make one."""
        if self._looks and not self._found:
            self._looks -= 1
            self._found = private_generators(self._dataset)

    def new_pass(self) -> None:
        """Look again: between passes a data set may have got other generators."""
        self._found, self._looks = [], 2

    def states(self) -> dict[str, bytes]:
        """Return the digest (16 bytes) of each generator's state by its path."""
        states = ((generator.path, generator.state()) for generator in self._found)
        return {path: state for path, state in states if state is not None}


def private_generators(dataset: Any) -> list[PrivateGenerator]:
    """Return the generators that ``dataset`` keeps, found by a bounded walk over its attributes and containers."""
    found: list[PrivateGenerator] = []
    seen = {id(dataset)}
    level = [("dataset", dataset)]
    for _ in range(_DEPTH):
        below = []
        for path, owner, key, thing in _inside(level):
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if len(seen) > _THINGS:
                return found
            if _kind(thing) is not None:
                found.append(PrivateGenerator(path, owner, key))
            else:
                below.append((path, thing))
        level = below
    return found


def _inside(level: list[tuple[str, Any]]) -> Iterator[tuple[str, Any, Any, Any]]:
    for path, thing in level:
        if type(thing) in (list, tuple):
            for index, item in enumerate(thing[:_ITEMS]):
                yield f"{path}[{index}]", thing, index, item
        elif type(thing) is dict:
            for key in list(thing)[:_ITEMS]:
                yield f"{path}.{key}", thing, key, thing[key]
        else:
            attributes = _attributes(thing)
            for key in attributes:
                yield f"{path}.{key}", attributes, key, attributes[key]


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes to look at: an object's own; what a bound method or a partial function holds."""
    if type(thing) is functools.partial:
        return {"func": thing.func, "args": thing.args, "keywords": thing.keywords}
    if type(thing) is types.MethodType:
        return {"self": thing.__self__}
    if isinstance(thing, (type, torch.Tensor)) or not hasattr(type(thing), "__dict__"):
        return {}
    own = getattr(thing, "__dict__", None)
    return own if type(own) is dict and type(thing).__module__ != "builtins" else {}
