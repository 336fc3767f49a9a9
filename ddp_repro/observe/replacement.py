"""Replaces an attribute of a class or module from outside, and puts back exactly what was there; removes hooks."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from torch.utils.hooks import RemovableHandle

_logger: Final = logging.getLogger(__name__)
_ABSENT: Final = object()

Detach = Callable[[], None]


def removing(handles: Sequence[RemovableHandle]) -> Detach:
    """Return what removes the hooks of these handles."""

    def detach() -> None:
        for handle in handles:
            handle.remove()

    return detach


def replace_attribute(owner: Any, name: str, make: Callable[[Any], Any]) -> Detach:
    """Set ``owner.name`` to ``make(what is there)``; the returned callable puts the old object back.

    Where something else was put over ours in the meantime, it stays, and that is logged: ours must then do nothing but
    call what it replaced.
    """
    before = vars(owner).get(name, _ABSENT)
    ours = make(getattr(owner, name))
    setattr(owner, name, ours)

    def detach() -> None:
        if vars(owner).get(name) is not ours:
            _logger.warning("%r.%s was replaced by something else while observed: it is left as it is", owner, name)
        elif before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return detach
