"""Which rank of a world failed first: the others only lost their connection to it."""

import signal
from collections.abc import Sequence

from ddp_repro.run.failure import is_aftermath
from ddp_repro.run.rank_state import RankState


def origin(ranks: Sequence[RankState], broken: Sequence[int], told: Sequence[int]) -> int:
    """Return the rank that failed first, of those that are ``broken``.

    ``told`` are the ranks that told the driver of an error, in that order. A rank that was killed or left by
    ``os._exit`` says nothing; of those that say something, the first one did before it closed its connections.
    """
    gone = [number for number in broken if not ranks[number].is_running]
    silent = [number for number in gone if ranks[number].error is None]
    silent.sort(key=lambda number: (ranks[number].process.returncode or 0) >= 0)
    leaving = [number for number in broken if ranks[number].leaving_for]
    return next(iter([*silent, *leaving, *told, *broken]))


def origin_on_nodes(ranks: Sequence[RankState], told: Sequence[int]) -> int:
    """Return the rank that failed first, where what is known of other nodes comes late and in any order.

    That is one that was killed, else one whose error is not that of a lost connection. One that aborts may do so
    because it lost its connection.
    """
    broken = [number for number, rank in enumerate(ranks) if rank.is_broken or rank.is_stuck_on_its_way_out]
    silent = [number for number in broken if not ranks[number].is_running and ranks[number].error is None]
    killed = [number for number in silent if (ranks[number].process.returncode or 0) not in (0, -signal.SIGABRT)]
    killed.sort(key=lambda number: (ranks[number].process.returncode or 0) >= 0)
    own = [number for number in told if not _is_aftermath(ranks[number])]
    leaving = [number for number in broken if ranks[number].leaving_for]
    return next(iter([*killed, *own, *silent, *leaving, *told, *broken]))


def _is_aftermath(rank: RankState) -> bool:
    return rank.error is not None and is_aftermath(rank.error.text)
