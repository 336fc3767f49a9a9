"""What the traces of a run show beside its verdict: which of them are compared, and how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ddp_repro.judge.as_compared import How
from ddp_repro.judge.findings import Variant
from ddp_repro.judge.resume_judgement import Stretch
from ddp_repro.judge.wording import counted
from ddp_repro.report.html.gathering import Gathered, gather
from ddp_repro.report.html.grid import Grid, grid
from ddp_repro.report.html.seen import Look
from ddp_repro.report.html.source import Source

_NUMBER_OF_WORKERS: Final = "experiment.config.data.num_workers"
_UNREAD: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the traces show: the map, the chain, the pictures; ``notes`` say what could not be shown, and why.

    The map compares the launches of ``pair``, or, in the launch ``within[0]``, all ranks with rank ``within[1]``.
    """

    pair: tuple[int, int] | None
    within: tuple[int, int] | None
    gathered: Gathered
    grid: Grid | None
    notes: list[str]


def traced_of(verdict: Mapping[str, Any], source: Source) -> Traced:
    """Read the traces, compare them as the verdict compared them, and return what they show."""
    numbers = [int(entry["launch"]) for entry in verdict["launches"]]
    within = _within(verdict, source)
    pair, notes = (None, []) if within else _pair(verdict, numbers)
    look = Look(
        launches=numbers,
        pair=pair,
        how=_how(verdict),
        unfinished=_unfinished(verdict, source),
        reference=source.of_rank(*within) if within else None,
    )
    gathered = gather(source, look)
    has_map = any(len(one.first) > 1 for one in gathered.ranks)
    notes += gathered.unread[:_UNREAD]
    left = len(gathered.unread) - _UNREAD
    notes += [f"{counted(left, 'more trace')} could not be read either."] if left > 0 else []
    notes += [] if has_map or pair is None else ["No rank was observed in both launches: there is no map."]
    notes += _mismatch(verdict, gathered) if has_map else []
    drawn = grid(gathered.ranks) if has_map else None
    return Traced(pair=pair, within=within, gathered=gathered, grid=drawn, notes=notes)


def _drawn(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the finding that the map draws: the first one that has a place in two launches or ranks."""
    witnesses = ("launches", "twins", "ranks")
    return next((one for one in verdict["findings"] if one["witness"] in witnesses and one["launches"]), None)


def _within(verdict: Mapping[str, Any], source: Source) -> tuple[int, int] | None:
    """Return the launch in which ranks are compared, and the rank that they are compared with."""
    found = _drawn(verdict)
    if found is None or found["witness"] != "ranks":
        return None
    launch = found["launches"][0]
    ranks = source.ranks(launch)
    others = [rank for rank in ranks if rank not in found["ranks"]] or ranks
    return (launch, others[0]) if len(ranks) > 1 else None


def _pair(verdict: Mapping[str, Any], numbers: Sequence[int]) -> tuple[tuple[int, int] | None, list[str]]:
    """Return the launches that the map compares: those of the first finding between launches, else the first two."""
    if len(numbers) < 2:
        if verdict.get("golden"):
            return None, ["One launch, held against a golden: there is no map."]
        return None, ["One launch: there is nothing to compare it with, and no map."]
    refused = [one["field"] for one in verdict["identity"]["differences"] if not one["allowed"]]
    if refused:
        return None, ["Launches whose identities differ are not compared with each other: there is no map."]
    found = _drawn(verdict)
    if found is not None and len(found["launches"]) > 1:
        return (found["launches"][0], found["launches"][1]), []
    return (numbers[0], numbers[1]), []


def _unfinished(verdict: Mapping[str, Any], source: Source) -> frozenset[int]:
    """Return the launches that are not known to be whole."""
    numbers = [int(entry["launch"]) for entry in verdict["launches"]]
    if verdict["problems"]:
        return frozenset(numbers)
    records = {number: source.record(number) for number in numbers}
    return frozenset(number for number, one in records.items() if one is None or one.outcome != "finished")


def _mismatch(verdict: Mapping[str, Any], gathered: Gathered) -> list[str]:
    """Return what to say where the traces do not show the verdict's first difference: they are others by now."""
    found, first = _drawn(verdict), gathered.first_step
    if found is None or found["step"] is None or first == found["step"]:
        return []
    seen = "no difference" if first is None else f"the first difference {_at(first)}"
    told = (
        f"The traces show {seen}, and the verdict tells one {_at(found['step'])}: the verdict counts. What stands here "
        "was compared otherwise, or the files are no longer those that were judged."
    )
    return [told]


def _at(step: int) -> str:
    return "before step 0" if step < 0 else f"at step {step}"


def _how(verdict: Mapping[str, Any]) -> How:
    return How(
        ignore=tuple(verdict.get("ignore", ())),
        variants=tuple(
            Variant(overrides=tuple(one["overrides"]), launches=tuple(one["launches"]), allow=tuple(one["allow"]))
            for one in verdict["variants"]
        ),
        stretches=tuple(
            Stretch(
                launch=one["launch"],
                begins=one["begins"],
                stops=one["stops"],
                is_killed=one["killed"],
                compared_to=one["compared_to"],
            )
            for one in verdict.get("stretches", ())
        ),
        other_workers=any(
            one["allowed"] and one["field"] == _NUMBER_OF_WORKERS for one in verdict["identity"]["differences"]
        ),
    )
