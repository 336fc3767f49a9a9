"""Delta debugging (Zeller's ddmin): of things that together have an effect, as few as still have it."""

import itertools
from collections.abc import Callable, Sequence


def least(items: Sequence[str], has_effect: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Return a part of ``items``, in their order, that has the effect, and that has it no more with any one left out.

    All ``items`` have it and none of them has it not; neither is asked.
    """
    kept, parts = tuple(items), 2
    while len(kept) > 1:
        chunks = _chunks(kept, parts)
        without = [tuple(item for item in kept if item not in chunk) for chunk in chunks]
        smaller = next((one for one in [*chunks, *(without if parts > 2 else [])] if has_effect(one)), None)
        if smaller is not None:
            parts = 2 if smaller in chunks else max(parts - 1, 2)
            kept = smaller
        elif parts == len(kept):
            return kept
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _chunks(items: tuple[str, ...], parts: int) -> list[tuple[str, ...]]:
    bounds = [len(items) * part // parts for part in range(parts + 1)]
    return [items[start:end] for start, end in itertools.pairwise(bounds)]
