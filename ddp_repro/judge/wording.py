"""How numbers and lists are put into sentences."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_NAMED: Final = 4


def listed(items: Iterable[object], *, at_most: int = _NAMED) -> str:
    """Return "a, b and c"; more than ``at_most`` are cut, and how many is said."""
    texts = [str(item) for item in items]
    if len(texts) > at_most:
        return ", ".join(texts[:at_most]) + f" and {len(texts) - at_most:,} more"
    return ", ".join(texts[:-1]) + " and " + texts[-1] if len(texts) > 1 else "".join(texts)


def numbered(noun: str, numbers: Sequence[int], *, at_most: int = 8) -> str:
    """Return "rank 2", "ranks 0 and 1", "ranks 0 to 63": runs of three or more are joined."""
    noun = noun if len(numbers) == 1 else _plural(noun)
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{noun} {ordered[0]} to {ordered[-1]}"
    return f"{noun} {listed(ordered, at_most=at_most)}"


def counted(count: int, noun: str) -> str:
    """Return "1 sample", "1,797 samples" or "2 passes"."""
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def told_by_rank(values: Mapping[int, Any]) -> str:
    """Return "1 on rank 0 against 2 on ranks 1 and 2" for a value by rank; ``None`` is unset."""
    by_value: dict[str, list[int]] = {}
    for rank, value in values.items():
        by_value.setdefault("unset" if value is None else str(value), []).append(rank)
    return " against ".join(f"{value} on {numbered('rank', on)}" for value, on in by_value.items())


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
