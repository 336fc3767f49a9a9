"""Names and digests of everything in a batch, however it is nested."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import torch

from ddp_repro.observe.digest import bytes_digest, observation
from ddp_repro.observe.recorder import Scalar, integers, number, text

_LEAVES: Final = 256  # recorded by name; what a batch holds beyond them goes into one row
_DEPTH: Final = 8
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")

Leaf = tuple[str, Scalar]


def batch_content(batch: Any, name: str) -> list[Leaf]:
    """Return name and fact of each tensor, array, number and text in ``batch``.

    Items of lists and tuples are called ``name[0]``, values of mappings and fields ``name.key``. A batch of more than
    256 leaves has one row ``name.rest`` for those beyond.
    """
    leaves = list(_leaves(batch, name, _DEPTH))
    if len(leaves) <= _LEAVES:
        return leaves
    rest = leaves[_LEAVES:]
    spec = f"leaves[{len(rest)}]"
    joined = b"".join(leaf_name.encode() + fact[1] for leaf_name, fact in rest)
    return [*leaves[:_LEAVES], (f"{name}.rest", (spec, bytes_digest(joined, spec), None))]


def _leaves(thing: Any, name: str, depth: int) -> Iterator[Leaf]:
    fact = _fact(thing)
    parts = _parts(thing) if fact is None and depth else None
    if parts is None:
        yield name, fact or _opaque(thing)
        return
    for suffix, part in parts:
        yield from _leaves(part, name + suffix, depth - 1)


def _parts(thing: Any) -> list[tuple[str, Any]] | None:
    """Return what ``thing`` holds, each with what is added to its name; ``None`` where nothing can be seen in it."""
    if isinstance(thing, Mapping):
        return [(f".{key}", value) for key, value in thing.items()]
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return [(f".{key}", getattr(thing, key)) for key in thing._fields]
    if isinstance(thing, (list, tuple)):
        return [(f"[{index}]", value) for index, value in enumerate(thing)]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return [(f".{field.name}", getattr(thing, field.name, None)) for field in dataclasses.fields(thing)]
    attributes = getattr(thing, "__dict__", None) or _slots(thing)
    return [(f".{key}", value) for key, value in attributes.items()] if attributes else None


def _slots(thing: Any) -> dict[str, Any]:
    names = [name for kind in type(thing).__mro__ for name in _listed(kind.__dict__.get("__slots__", ()))]
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def _listed(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _fact(thing: Any) -> Scalar | None:
    if isinstance(thing, torch.Tensor):
        spec, digest = observation(thing)
        return spec.text, digest, None
    if isinstance(thing, (bool, int, float)):
        return number(thing)
    if isinstance(thing, (bytes, bytearray)):
        return "bytes", bytes_digest(thing, "bytes"), None
    if hasattr(thing, "tobytes") and hasattr(thing, "dtype"):
        return array_fact(thing)
    told = _told(thing)
    return None if told is None else text(told)


def _told(thing: Any) -> str | None:
    """Return the text of what is best told as one; a set's items in order, since its own order is chance."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, complex):
        return repr(thing)
    return repr(sorted(without_addresses(item) for item in thing)) if isinstance(thing, AbstractSet) else None


def without_addresses(thing: Any) -> bytes:
    """Return a text for ``thing`` that is the same in every process: memory addresses are taken out."""
    return _ADDRESS.sub("", repr(thing)).encode("utf-8", "surrogatepass")


def array_fact(array: Any) -> Scalar:
    """Return the fact that a NumPy array or scalar is (one of objects by its items' text, without addresses)."""
    spec = f"numpy {array.dtype}[{','.join(map(str, array.shape))}]"
    content = without_addresses(array.tolist()) if array.dtype.hasobject else array.tobytes()
    return spec, bytes_digest(content, spec), None


def _opaque(thing: Any) -> Scalar:
    """Return what can be said of something that is looked into no further: its type alone."""
    spec = "None" if thing is None else f"opaque {type(thing).__qualname__}"
    return spec, bytes_digest(b"", spec), None


def index_facts(indices: Any) -> list[tuple[str, bytes, float | list[float] | None]]:
    """Return the facts of the sample indices of an index batch (one index counts as a batch of one).

    Integers make one fact that stands for all of them; anything else makes a text for each index.
    """
    batch = indices if isinstance(indices, (list, tuple)) else [indices]
    whole = integers(batch)
    return (
        [whole]
        if whole is not None
        else [text(x if isinstance(x, str) else without_addresses(x).decode()) for x in batch]
    )
