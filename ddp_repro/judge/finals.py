"""What ranks ended with: the digests of parameters and buffers that they left, and what validation gave."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.divergence import LaunchDivergence
from ddp_repro.judge.rows import causal_place
from ddp_repro.judge.wording import listed, numbered
from ddp_repro.trace.launch import Launch

_HELD: Final = ("param", "buffer", "metric")
_OFF: Final = "off"


def was_observed(launch: Launch) -> bool:
    """Return whether a launch was to be observed: not with ``capture=off``."""
    return any(trace.meta.capture != _OFF for trace in launch.traces.values()) or not launch.traces


def no_end_told(launch: Launch) -> str:
    """Return why a launch cannot be judged by its end; empty where it can."""
    ranks = [rank for rank in sorted(launch.traces) if not _digests(launch, rank).get("param")]
    if not ranks:
        return ""
    return (
        f"launch {launch.index}: {numbered('rank', ranks)} left no digests of final parameters, by which launches that "
        "were not observed (capture=off) are judged"
    )


def compare_finals(a: Launch, b: Launch) -> LaunchDivergence | None:
    """Return in which parameters or buffers two launches end differently, rank by rank, or ``None``."""
    ranks = sorted(a.traces.keys() | b.traces.keys())
    missing = tuple(rank for rank in ranks if rank not in a.traces or rank not in b.traces)
    by_rank = {}
    for rank in ranks:
        found = None if rank in missing else _differing(a, b, rank)
        if found is not None:
            by_rank[rank] = found
    if not by_rank:
        return LaunchDivergence(first=None, ranks=missing, reached=(), by_rank={}, missing=missing) if missing else None
    first = min(by_rank.values(), key=lambda divergence: divergence.place)
    blamed = tuple(rank for rank, divergence in by_rank.items() if divergence.place == first.place)
    return LaunchDivergence(first=first, ranks=blamed, reached=(), by_rank=by_rank, missing=missing, at_end=True)


def common_ends(a: Launch, b: Launch, *, has_more_forwards: bool) -> tuple[Launch, Launch, int]:
    """Return two variants with the ends that both have, and how many values that leaves out.

    Validation that only one of them made is none of the training's. Where one made more forwards, the last of them may
    have broadcast the buffers of rank 0, whose own stay: those of other ranks are left out.
    """
    left_out = 0
    finals: list[dict[int, dict[str, Any]]] = [dict(a.finals), dict(b.finals)]
    for rank in a.finals.keys() & b.finals.keys():
        held = [_digests(launch, rank) for launch in (a, b)]
        common = held[0].get("metric", {}).keys() & held[1].get("metric", {}).keys()
        for ends, own in zip(finals, held, strict=True):
            kept = {**own, "metric": {name: value for name, value in own.get("metric", {}).items() if name in common}}
            if has_more_forwards and rank > 0:
                kept["buffer"] = {}
            left_out += sum(map(len, own.values())) - sum(map(len, kept.values()))
            ends[rank] = kept
    return replace(a, finals=finals[0]), replace(b, finals=finals[1]), left_out


def left_no_end(launches: Sequence[Launch]) -> list[str]:
    """Return a sentence on each rank that does not say what it ended with, where others do or its trace says it did."""
    others_do = any(launch.finals for launch in launches)
    return [
        f"launch {launch.index}: {numbered('rank', ranks)} did not say what training ended with (rank-<r>.final.json)"
        for launch in launches
        if (
            ranks := [
                rank
                for rank, trace in sorted(launch.traces.items())
                if rank not in launch.finals and (others_do or trace.end_told)
            ]
        )
    ]


def went_on_inexactly(launches: Sequence[Launch]) -> list[str]:
    """Return a note on each launch that went on from a checkpoint of another run, by the user's leave."""
    notes = []
    for launch in launches:
        fields = dict.fromkeys(str(name) for final in launch.finals.values() for name in final.get("not_exact", ()))
        if fields:
            notes.append(
                f"launch {launch.index} went on from a checkpoint of a run with other {listed(fields)}, as "
                "checkpoint.allow says: it is not an exact continuation of that run"
            )
    return notes


def _digests(launch: Launch, rank: int) -> dict[str, dict[str, object]]:
    final = launch.finals.get(rank, {})
    return {phase: final[phase] for phase in _HELD if isinstance(final.get(phase), dict)}


def _differing(a: Launch, b: Launch, rank: int) -> Divergence | None:
    if (rank in a.finals) != (rank in b.finals):
        return None  # a reason not to judge (``left_no_end``), and no difference
    held_a, held_b = _digests(a, rank), _digests(b, rank)
    names = {phase: _names(held_a.get(phase, {}), held_b.get(phase, {})) for phase in _HELD}
    names = {phase: differing for phase, differing in names.items() if differing}
    if not names:
        return None
    phase = next(iter(names))
    return Divergence(
        kind=Kind.VALUE,
        step=0,
        phase=phase,
        name=names[phase][0],
        spec="",
        place=causal_place(phase),
        rows=(None, None),
        names=names,
        differing=sum(map(len, names.values())),
        compared=sum(len(held_a.get(phase, {}).keys() | held_b.get(phase, {}).keys()) for phase in _HELD),
    )


def _names(a: dict[str, object], b: dict[str, object]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name))
