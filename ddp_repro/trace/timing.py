"""``rank-<r>.timing.json``: how long each step of a rank took, and how much memory the rank."""

from dataclasses import dataclass
from typing import Final

from ddp_repro.errors import ReproError
from ddp_repro.trace.document import read_json
from ddp_repro.trace.layout import LaunchFolder

TIMING_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTiming:
    """``seconds`` of each optimizer step from the second on; peak memory in bytes, where it is known."""

    seconds: list[float]
    rss_bytes: int | None
    gpu_bytes: int | None


def read_timing(folder: LaunchFolder, rank: int) -> RankTiming:
    """Read what a rank noted; raise ReproError where it left nothing, or nothing that can be read."""
    content = read_json(folder.timing(rank))
    try:
        if content["schema"] != TIMING_SCHEMA:
            raise ReproError(f"{folder.timing(rank)} was written by another version", hint="measure again")
        return RankTiming(
            seconds=[int(one) / 1e9 for one in content["intervals_ns"]],
            rss_bytes=content["peak_rss_bytes"],
            gpu_bytes=content["peak_gpu_bytes"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ReproError(f"{folder.timing(rank)} is damaged: {error!r}", hint="measure again") from error
