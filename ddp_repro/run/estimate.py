"""What the modules and operators of all launches will take on disk, told while there is time to stop."""

from dataclasses import dataclass
from typing import Final

from ddp_repro.config import RecordConfig

_MIB: Final = 1 << 20
_LARGE: Final = 256 * _MIB
_LARGE_STEP: Final = _MIB  # where nobody knows how many of them there will be
_SHARE_OF_DISK: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes that a step takes on rank 0, how many ``steps`` are planned (``None``: unknown), launches, bytes free."""

    step: int
    steps: int | None
    launches: int
    free: int


def size_note(config: RecordConfig, sizes: Sizes) -> str | None:
    """Return what the traces will come to, where that is much or more than there is room for; else ``None``."""
    steps, limit = _observed_steps(config, sizes.steps), config.capture.limit_mb * _MIB
    each = limit if steps is None else min(limit, sizes.step * steps)
    whole = each * config.nproc * sizes.launches
    is_tight = whole > _SHARE_OF_DISK * sizes.free
    is_large = sizes.step >= _LARGE_STEP if steps is None else whole >= _LARGE
    if not (is_large or is_tight):
        return None
    how_many = f"{steps:,} steps" if steps is not None else "as many steps as there are, to capture.limit_mb"
    return (
        f"modules and operators take about {_told(sizes.step)} a step and rank: {_told(whole)} for {how_many}, "
        f"{config.nproc} ranks, launches={sizes.launches}; {_told(sizes.free)} are free; capture.steps narrows it"
    )


def _observed_steps(config: RecordConfig, planned: int | None) -> int | None:
    if not config.capture.steps:
        return planned
    first, last = config.capture.steps
    last = last if planned is None else min(last, planned - 1)
    return max(0, last - first + 1)


def _told(size: int) -> str:
    if size < _MIB:
        return f"{size / 1024:,.0f} KiB"
    return f"{size / _MIB:,.1f} MiB" if size < 1024 * _MIB else f"{size / _MIB / 1024:,.1f} GiB"
