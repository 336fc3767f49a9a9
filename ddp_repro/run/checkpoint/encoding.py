"""Nested state as JSON, exactly, with its tensors and arrays apart; nothing that is read back can run code.

What JSON has no word for is an object with one key that begins with ``$``. Floats keep their bits, dictionaries their
order and the types of their keys, tuples stay tuples. Objects of other types are refused by their place.
"""

import base64
import collections
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from ddp_repro.errors import ReproError

_MAPPINGS: Final[dict[str, type]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
}
_SEQUENCES: Final[dict[str, type]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "size": torch.Size,
}
_FACTORIES: Final[dict[str, type]] = {one.__name__: one for one in (int, float, list, dict, set)}
_SAFE_INTEGER: Final = 1 << 63


@dataclass(slots=True, kw_only=True)
class Encoder:
    """Turns state into JSON; tensors are given to ``keep``, with their place, which returns what stands for them.

    An object of a type that is not known is refused with ``ReproError``, or, with ``leave_objects``, left out where it
    is the value of a dictionary, and its place noted in ``left_out``.
    """

    keep: Callable[[str, torch.Tensor], dict[str, Any]]
    leave_objects: bool = False
    left_out: list[str] = field(default_factory=list)

    def encode(self, value: Any, place: str) -> Any:
        """Return ``value``, which is found at ``place``, as JSON."""
        try:
            return self._encoded(value, place)
        except RecursionError as error:
            raise ReproError(f"{place} is nested too deeply, or holds itself", hint="save it in flat parts") from error

    def _encoded(self, value: Any, place: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self.keep(place, value)
        if type(value) is list:
            return [self._encoded(part, f"{place}.{index}") for index, part in enumerate(value)]
        if isinstance(value, dict):
            return self._mapping(value, place)
        if not _is_known(value):
            raise _unknown(value, place)
        if type(value) in _SEQUENCES.values():
            return self._sequence(value, place)
        return self._array(value, place) if type(value) is np.ndarray else _leaf(value)

    def _mapping(self, value: dict[Any, Any], place: str) -> Any:
        kept = {key: part for key, part in value.items() if not self._leaves(part, f"{place}.{key}")}
        plain = all(type(key) is str and not key.startswith("$") for key in kept)
        if type(value) is dict and plain:
            return {key: self._encoded(part, f"{place}.{key}") for key, part in kept.items()}
        pairs = [
            [self._encoded(key, f"{place} (key)"), self._encoded(part, f"{place}.{key}")] for key, part in kept.items()
        ]
        if type(value) is collections.defaultdict:
            factory = None if value.default_factory is None else getattr(value.default_factory, "__name__", "")
            if factory is None or _FACTORIES.get(factory) is value.default_factory:
                return {"$defaultdict": [factory, pairs]}
        name = type(value).__name__
        if _MAPPINGS.get(name) is not type(value):
            raise _unknown(value, place)
        return {f"${name}": pairs}

    def _leaves(self, value: Any, place: str) -> bool:
        if self.leave_objects and not _is_known(value):
            self.left_out.append(place)
            return True
        return False

    def _sequence(self, value: Any, place: str) -> Any:
        name = next(name for name, kind in _SEQUENCES.items() if kind is type(value))
        parts = sorted(value, key=repr) if name in {"set", "frozenset"} else value
        encoded = [self._encoded(part, f"{place}.{index}") for index, part in enumerate(parts)]
        return {"$deque": [value.maxlen, encoded]} if name == "deque" else {f"${name}": encoded}

    def _array(self, value: "np.ndarray[Any, Any]", place: str) -> Any:
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        content = (
            torch.frombuffer(bytearray(value.tobytes("F" if order == "F" else "C")), dtype=torch.uint8)
            if value.nbytes
            else _nothing()
        )
        described = [value.dtype.str, list(value.shape), order]
        return {"$array": [*described, self.keep(place, content)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Turns what an ``Encoder`` gave back into state; ``tensor`` returns the tensor that an object stands for."""

    tensor: Callable[[dict[str, Any]], torch.Tensor]

    def decode(self, value: Any) -> Any:
        """Return the state. Raises ``ReproError`` for what no ``Encoder`` wrote."""
        try:
            return self._decoded(value)
        except (RecursionError, TypeError, ValueError, KeyError, AttributeError, struct.error) as error:
            raise ReproError(f"the saved state cannot be read: {error}", hint="take an older checkpoint") from error

    def _decoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decoded(part) for part in value]
        if not isinstance(value, dict):
            return value
        mark = next((key for key in value if key.startswith("$")), None)
        if mark is None:
            return {key: self._decoded(part) for key, part in value.items()}
        if mark in {"$tensor", "$sharded"}:
            return self.tensor(value)
        return self._marked(mark[1:], value[mark])

    def _marked(self, mark: str, content: Any) -> Any:
        if mark in _MAPPINGS:
            made = _MAPPINGS[mark]()
            made.update(self._pairs(content))
            return made
        if mark == "defaultdict":
            factory, pairs = content
            return collections.defaultdict(None if factory is None else _FACTORIES[factory], self._pairs(pairs))
        if mark == "deque":
            return collections.deque(self._decoded(content[1]), content[0])
        if mark in _SEQUENCES:
            return _SEQUENCES[mark](self._decoded(content))
        if mark == "array":
            return self._array(content)
        return _ATOMS[mark](content)

    def _pairs(self, pairs: Sequence[Any]) -> dict[Any, Any]:
        return {self._decoded(key): self._decoded(part) for key, part in pairs}

    def _array(self, content: Sequence[Any]) -> "np.ndarray[Any, Any]":
        dtype, shape, order, kept = content
        raw = self.tensor(kept).numpy().tobytes()
        return np.ndarray(shape, dtype=np.dtype(dtype), buffer=bytearray(raw) if raw else None, order=order)


def _leaf(value: Any) -> Any:
    return (
        _LEAVES[type(value)](value) if type(value) in _LEAVES else {"$scalar": [value.dtype.str, value.tobytes().hex()]}
    )


def _bytes(value: bytes | bytearray) -> Any:
    return {f"${type(value).__name__}": base64.b64encode(value).decode()}


def _same(value: Any) -> Any:
    return value


_LEAVES: Final[dict[type, Callable[[Any], Any]]] = {
    type(None): _same,
    bool: _same,
    str: _same,
    int: lambda value: value if -_SAFE_INTEGER <= value < _SAFE_INTEGER else {"$int": hex(value)},
    float: lambda value: value if math.isfinite(value) else {"$float": struct.pack("<d", value).hex()},
    complex: lambda value: {"$complex": struct.pack("<dd", value.real, value.imag).hex()},
    bytes: _bytes,
    bytearray: _bytes,
    torch.dtype: lambda value: {"$dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value: {"$device": str(value)},
}


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if type(dtype) is not torch.dtype:
        raise ValueError(f"{name} is no dtype")
    return dtype


_ATOMS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": lambda content: int(content, 16),
    "float": lambda content: struct.unpack("<d", bytes.fromhex(content))[0],
    "complex": lambda content: complex(*struct.unpack("<dd", bytes.fromhex(content))),
    "bytes": base64.b64decode,
    "bytearray": lambda content: bytearray(base64.b64decode(content)),
    "dtype": _dtype,
    "device": torch.device,
    "scalar": lambda content: np.frombuffer(bytes.fromhex(content[1]), dtype=np.dtype(content[0]))[0],
}


def _is_known(value: Any) -> bool:
    """Tell whether a value is of a type that can be saved; what is in a container is not looked at."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "?biufcSU" and (type(value) is np.ndarray or isinstance(value, np.generic))
    known = (list, collections.defaultdict, *_LEAVES, *_MAPPINGS.values(), *_SEQUENCES.values())
    return isinstance(value, torch.Tensor) or type(value) in known


def _unknown(value: Any, place: str) -> ReproError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return ReproError(
        f"{place} is a {kind}, which cannot be saved without pickling it",
        hint="save numbers, texts, tensors, arrays, and containers of these; leave it out, or give it a state_dict",
    )


def _nothing() -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8)


def plain_json(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return ``value`` as plain JSON-able data. Raises ``ReproError`` where it holds anything else."""

    def refuse(place: str, tensor: torch.Tensor) -> dict[str, Any]:
        raise _unknown(tensor, place)

    encoded = Encoder(keep=refuse).encode(dict(value), what)
    assert isinstance(encoded, dict)
    return encoded
