"""Finds the objects of a class that live in this process."""

import gc
from typing import Any, TypeVar

_T = TypeVar("_T")


def living(kind: type[_T]) -> list[_T]:
    """Return the living objects of ``kind`` and its subclasses."""
    kinds = _subclasses(kind)
    return [thing for thing in gc.get_objects() if type(thing) in kinds]


def living_of(kinds: tuple[type, ...]) -> list[Any]:
    """Return the living objects of several kinds and their subclasses, looking once."""
    wanted = set().union(*map(_subclasses, kinds))
    return [thing for thing in gc.get_objects() if type(thing) in wanted]


def _subclasses(kind: type) -> set[type]:
    found = {kind}
    waiting = [kind]
    while waiting:
        subclasses: list[type] = type.__subclasses__(waiting.pop())
        below = [subclass for subclass in subclasses if subclass not in found]
        found.update(below)
        waiting.extend(below)
    return found
