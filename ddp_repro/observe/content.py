"""Names and digests of everything in a batch, however it is nested."""

import dataclasses
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from os import PathLike
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import torch

from ddp_repro.observe.digest import bytes_digest, observation
from ddp_repro.observe.recorder import Scalar, integers, number, text

OPAQUE: Final = "opaque "
"""Prefix of the spec of something in which nothing, or not all, can be seen: its type is compared and little else."""

_LEAVES: Final = 256  # recorded by name; what a batch holds beyond them goes into one row
_DEPTH: Final = 8
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_AGAIN: Final[Scalar] = ("again", bytes_digest(b"", "again"), None)  # something that holds itself
_AS_TEXT: Final[tuple[tuple[tuple[type, ...], Callable[[Any], str]], ...]] = (
    ((str,), lambda thing: thing),
    ((Enum,), lambda thing: f"{type(thing).__qualname__}.{thing.name}"),
    ((type,), lambda thing: f"{thing.__module__}.{thing.__qualname__}"),
    ((ModuleType,), lambda thing: thing.__name__),
    ((PathLike,), lambda thing: repr(thing.__fspath__())),
    ((complex, range, slice, Decimal, Fraction, UUID, date, time, timedelta, tzinfo), repr),
    ((torch.dtype, torch.device, torch.layout, torch.memory_format), repr),
)

Leaf = tuple[str, Scalar]


def batch_content(batch: Any, name: str) -> list[Leaf]:
    """Return name and fact of each tensor, array, number and text in ``batch``.

    Items of lists and tuples are called ``name[0]``, values of mappings and fields ``name.key``. A batch of more than
    256 leaves has one row ``name.rest`` for those beyond, and one more for each opaque type among them.
    """
    leaves = list(_leaves(batch, name, ()))
    if len(leaves) <= _LEAVES:
        return leaves
    rest = leaves[_LEAVES:]
    spec = f"leaves[{len(rest)}]"
    joined = b"".join(leaf_name.encode() + fact[1] for leaf_name, fact in rest)
    opaque = sorted({fact[0] for _, fact in rest if fact[0].startswith(OPAQUE)})
    return [
        *leaves[:_LEAVES],
        (f"{name}.rest", (spec, bytes_digest(joined, spec), None)),
        *((f"{name}.rest", (spec, bytes_digest(b"", spec), None)) for spec in opaque),
    ]


def _leaves(thing: Any, name: str, around: tuple[int, ...]) -> Iterator[Leaf]:
    fact = _fact(thing)
    if fact is None and id(thing) in around:
        fact = _AGAIN
    parts = _parts(thing) if fact is None and len(around) < _DEPTH else None
    if parts is None:
        yield name, fact or _opaque(thing)
        return
    for suffix, part in parts:
        yield from _leaves(part, name + suffix, (*around, id(thing)))


def _parts(thing: Any) -> list[tuple[str, Any]] | None:
    """Return what ``thing`` holds, each with what is added to its name; ``None`` where nothing can be seen in it."""
    if isinstance(thing, Mapping):
        return [(f".{key}", value) for key, value in thing.items()]
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return [(f".{key}", getattr(thing, key)) for key in thing._fields]
    if isinstance(thing, (list, tuple, deque)):
        return [(f"[{index}]", value) for index, value in enumerate(thing)]
    if isinstance(thing, weakref.ref):
        return [("()", thing())]
    if _is_array(thing):
        return [(".shape", thing.shape), ("", thing.tolist())]
    attributes = _attributes(thing)
    return [(f".{key}", value) for key, value in attributes.items()] if attributes else None


def _attributes(thing: Any) -> dict[str, Any]:
    """Return fields, slots and attributes by name; each of them may hold some."""
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    slots = [(name, kind) for kind in type(thing).__mro__ for name in _listed(kind.__dict__.get("__slots__", ()))]
    named = [field.name for field in fields]
    named += [_mangled(name, kind) for name, kind in slots if name not in ("__dict__", "__weakref__")]
    held = {name: getattr(thing, name, None) for name in named if hasattr(thing, name)}
    return held | getattr(thing, "__dict__", {})


def _listed(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _mangled(name: str, kind: type) -> str:
    """Return the attribute that a slot is: Python prefixes private names with their class."""
    return f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def _fact(thing: Any) -> Scalar | None:
    if isinstance(thing, torch.Tensor):
        spec, digest = observation(thing)
        return spec.text, digest, None
    if isinstance(thing, (bool, int, float)):
        return number(thing)
    if isinstance(thing, (bytes, bytearray)):
        return "bytes", bytes_digest(thing, "bytes"), None
    if _is_array(thing):
        return None if thing.dtype.hasobject else array_fact(thing)
    return _text_fact(thing) or _buffer_fact(thing)


def _is_array(thing: Any) -> bool:
    return hasattr(thing, "tobytes") and hasattr(thing, "dtype")


def _text_fact(thing: Any) -> Scalar | None:
    """Return the fact of what is best told as a text; a set's items in order, since its own order is chance."""
    for kinds, told in _AS_TEXT:
        if isinstance(thing, kinds):
            return text(told(thing))
    if not isinstance(thing, AbstractSet):
        return None
    items = repr(sorted(without_addresses(item) for item in thing))
    return text(items) if not any(map(_is_told_by_address, thing)) else _seen_in_part(thing, items.encode())


def _buffer_fact(thing: Any) -> Scalar | None:
    """Return the fact of an object that shows its memory, as ``array.array`` and objects of C extensions do."""
    try:
        memory = memoryview(thing)
        spec = f"{type(thing).__qualname__} {memory.format}[{','.join(map(str, memory.shape or ()))}]"
        return spec, bytes_digest(memory.tobytes(), spec), None
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return None


def _is_told_by_address(thing: Any) -> bool:
    return _ADDRESS.search(repr(thing)) is not None


def without_addresses(thing: Any) -> bytes:
    """Return a text for ``thing`` that is the same in every process: memory addresses are taken out."""
    return _ADDRESS.sub("", repr(thing)).encode("utf-8", "surrogatepass")


def array_fact(array: Any) -> Scalar:
    """Return the fact that a NumPy array or scalar is (one of objects by its items' text, without addresses)."""
    spec = f"numpy {array.dtype}[{','.join(map(str, array.shape))}]"
    if not array.dtype.hasobject:
        return spec, bytes_digest(array.tobytes(), spec), None
    items = array.tolist()
    spec = f"{OPAQUE}{spec}" if _is_told_by_address(items) else spec
    return spec, bytes_digest(without_addresses(items), spec), None


def _opaque(thing: Any) -> Scalar:
    """Return what can be said of something that is looked into no further: its type alone."""
    if thing is None:
        return "None", bytes_digest(b"", "None"), None
    return _seen_in_part(thing, b"")


def _seen_in_part(thing: Any, seen: bytes) -> Scalar:
    spec = f"{OPAQUE}{type(thing).__qualname__}"
    return spec, bytes_digest(seen, spec), None


def index_facts(indices: Any) -> list[tuple[str, bytes, float | list[float] | None]]:
    """Return the facts of the sample indices of an index batch (one index counts as a batch of one).

    Integers make one fact that stands for all of them; anything else makes a text for each index.
    """
    batch = indices if isinstance(indices, (list, tuple)) else [indices]
    whole = integers(batch)
    return [whole] if whole is not None else [_index_fact(index) for index in batch]


def _index_fact(index: Any) -> Scalar:
    if isinstance(index, str):
        return text(index)
    told = without_addresses(index)
    return _seen_in_part(index, told) if _is_told_by_address(index) else text(told.decode())
