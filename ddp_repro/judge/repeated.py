"""Whether a launch is in memory the very one that was judged before: what was found in the one holds for the other."""

from typing import Any, Final

from ddp_repro.trace.launch import Launch
from ddp_repro.trace.observations import Trace

_COLUMNS: Final = ("step", "phase", "name", "spec", "digest", "value", "valid")
_LABELS: Final = ("phases", "names", "specs", "end", "damage")
_OF_ONE_LAUNCH: Final = ("provenance", "digest")


def holds_the_same(one: Launch, other: Launch) -> bool:
    """Return whether all that is judged within a launch is the same in both; columns by being the very same."""
    if one.traces.keys() != other.traces.keys() or _world_size(one) != _world_size(other):
        return False
    if one.finals != other.finals or _compared(one) != _compared(other):
        return False
    return all(_is_same(trace, other.traces[rank]) for rank, trace in one.traces.items())


def _is_same(one: Trace, other: Trace) -> bool:
    if any(getattr(one, column) is not getattr(other, column) for column in _COLUMNS):
        return False
    is_alike = all(getattr(one, name) == getattr(other, name) for name in _LABELS)
    return is_alike and one.meta.capture == other.meta.capture and one.meta.world_size == other.meta.world_size


def _world_size(launch: Launch) -> int | None:
    return launch.record.world_size if launch.record else None


def _compared(launch: Launch) -> dict[int, dict[str, Any]]:
    return {
        rank: {name: value for name, value in identity.items() if name not in _OF_ONE_LAUNCH}
        for rank, identity in launch.identities.items()
    }
