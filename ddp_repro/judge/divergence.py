"""Where two launches first differ, and on which ranks to blame it. ``None`` means that they are equal in bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddp_repro.judge.comparison import Comparison, Divergence, Kind, compare_traces, examine_traces
from ddp_repro.judge.rows import causal_place
from ddp_repro.trace.launch import Launch

__all__ = [
    "Compare",
    "Comparison",
    "Divergence",
    "Kind",
    "LaunchDivergence",
    "classes",
    "compare_launches",
    "compare_traces",
    "reordered_rows",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDivergence:
    """The first difference between two launches.

    ``first`` is the earliest over the ranks (``None`` where no common rank differs), ``ranks`` those it is blamed on,
    ``reached`` those that differ in the same step only because a collective handed the difference on. ``by_rank`` has
    the first difference of every rank that differs, ``missing`` the ranks that only one of the launches has.
    ``at_end`` says that only what the launches ended with was there to be compared, so that no step is known.
    """

    first: Divergence | None
    ranks: tuple[int, ...]
    reached: tuple[int, ...]
    by_rank: dict[int, Divergence]
    missing: tuple[int, ...]
    at_end: bool = False


Compare = Callable[[Launch, Launch], LaunchDivergence | None]
"""How two launches are compared; ``None`` means equal."""


def compare_launches(a: Launch, b: Launch, *, before: int | None = None) -> LaunchDivergence | None:
    """Return the first difference between two launches, or ``None``; with ``before``, only over steps below it."""
    missing = tuple(sorted(a.traces.keys() ^ b.traces.keys()))
    by_rank = {}
    for rank in sorted(a.traces.keys() & b.traces.keys()):
        divergence = examine_traces(a.traces[rank], b.traces[rank], before=before).divergence
        if divergence is not None:
            by_rank[rank] = divergence
    if by_rank:
        return _blamed(by_rank, missing)
    return LaunchDivergence(first=None, ranks=missing, reached=(), by_rank={}, missing=missing) if missing else None


def classes(launches: Sequence[Launch], compare: Compare = compare_launches) -> list[list[int]]:
    """Return the numbers of the launches in classes of equal bits, in order of first appearance.

    One that was ended early is in the first class of which no launch differs from it, as far as it goes.
    """
    found: list[list[Launch]] = []
    for launch in launches:
        alike = next((alike for alike in found if all(compare(one, launch) is None for one in _of_class(alike))), None)
        if alike is None:
            found.append([launch])
        else:
            alike.append(launch)
    return [[launch.index for launch in alike] for alike in found]


def _of_class(alike: Sequence[Launch]) -> Sequence[Launch]:
    """Return the launches that stand for a class: one, or all where they were compared only so far."""
    return alike if any(one.was_cut for one in alike) else alike[:1]


def reordered_rows(a: Launch, b: Launch) -> int:
    """Return how many rows of ``b`` stand elsewhere than in ``a`` and are equal all the same."""
    ranks = a.traces.keys() & b.traces.keys()
    return sum(examine_traces(a.traces[rank], b.traces[rank]).reordered for rank in ranks)


def _blamed(by_rank: Mapping[int, Divergence], missing: tuple[int, ...]) -> LaunchDivergence:
    """Blame the ranks whose own input to the reduction differs; where nobody's does, those that differ first."""
    step = min(divergence.step for divergence in by_rank.values())
    now = {rank: divergence for rank, divergence in by_rank.items() if divergence.step == step}
    first = min(now.values(), key=lambda divergence: divergence.place)
    reduced = causal_place("grad_reduced")
    own = [rank for rank, divergence in now.items() if divergence.place < reduced]
    ranks = own or [rank for rank, divergence in now.items() if divergence.place == first.place]
    return LaunchDivergence(
        first=first,
        ranks=tuple(ranks),
        reached=tuple(rank for rank in now if rank not in ranks) if own else (),
        by_rank=dict(by_rank),
        missing=missing,
    )
