"""Which ranks to blame where not all hold the same."""

from collections import Counter
from collections.abc import Mapping


def outside_majority(values: Mapping[int, object]) -> tuple[tuple[int, ...], bool]:
    """Return the ranks whose value is not that of more than half, and True; all ranks and False where none is."""
    usual, count = Counter(values.values()).most_common(1)[0]
    if 2 * count <= len(values):
        return tuple(values), False
    return tuple(rank for rank, value in values.items() if value != usual), True
