"""Names and digests of everything in a batch, however it is nested."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from ddp_repro.observe.digest import bytes_digest, observation
from ddp_repro.observe.recorder import Scalar, integers, number, text

_LEAVES: Final = 256  # recorded by name; what a batch holds beyond them goes into one row
_DEPTH: Final = 8

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
    attributes = getattr(thing, "__dict__", None)
    return [(f".{key}", value) for key, value in attributes.items()] if attributes else None


def _fact(thing: Any) -> Scalar | None:
    if isinstance(thing, torch.Tensor):
        spec, digest = observation(thing)
        return spec.text, digest, None
    if isinstance(thing, (bool, int, float)):
        return number(thing)
    if isinstance(thing, str):
        return text(thing)
    if isinstance(thing, (bytes, bytearray)):
        return "bytes", bytes_digest(thing, "bytes"), None
    if hasattr(thing, "tobytes") and hasattr(thing, "dtype"):
        return _array(thing)
    return None


def _array(array: Any) -> Scalar:
    """Return the fact that a NumPy array or scalar is (one of objects by its items' text)."""
    spec = f"numpy {array.dtype}[{','.join(map(str, array.shape))}]"
    content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
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
    return [whole] if whole is not None else [text(x if isinstance(x, str) else repr(x)) for x in batch]
