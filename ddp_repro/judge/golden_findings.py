"""The finding on the first difference between a golden and a launch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.diagnosis import examined
from ddp_repro.judge.distance import distance_between
from ddp_repro.judge.divergence import LaunchDivergence
from ddp_repro.judge.findings import Distance, Finding
from ddp_repro.judge.golden_causes import BY_PHASE, CHANGED
from ddp_repro.judge.rows import REPLICATED
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.observations import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is said of a difference: its cause, the gaps of its sentences, and more."""

    cause: str
    gaps: Mapping[str, str]
    details: list[str]
    first: Divergence
    distance: Distance | None = None


def golden_finding(both: tuple[Launch, Launch], found: LaunchDivergence, *, is_full: bool, since: str) -> Finding:
    """Return the finding; ``both``, golden and launch, are as they were compared: in full, or by phase.

    ``since`` tells from which code to which they are, as the end of a clause.
    """
    golden, launch = both
    first = found.first
    assert first is not None, "a golden and a launch of one identity have the same ranks"
    if found.at_end:
        told = _end(first)
    elif first.kind in (Kind.MISSING, Kind.EXTRA):
        told = _missing(first)
    elif is_full:
        told = _in_full(golden, launch, found, first)
    else:
        told = _by_phase(golden, launch, found, first)
    return _finding(launch, found, told, since)


def _finding(launch: Launch, found: LaunchDivergence, told: _Told, since: str) -> Finding:
    first = told.first
    place = Place(
        witness="golden",
        launches=(launch.index,),
        step=None if found.at_end else first.step,
        ranks=found.ranks,
        phase=first.phase,
        name=first.name,
        names=tuple(name for name in first.names[first.phase] if name),
    )
    gaps = {"since": since, "of_name": _of(first.name), **told.gaps}
    detail = "; ".join(told.details)
    return replace(finding(told.cause, place, gaps, detail=detail, causes=CHANGED), distance=told.distance)


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _end(first: Divergence) -> _Told:
    detail = f"{first.differing:,} of {first.compared:,} digests of final parameters, buffers and validation differ"
    return _Told(cause="other-end", gaps={"name": f"{first.phase} {first.name}"}, details=[detail], first=first)


def _missing(first: Divergence) -> _Told:
    what = f"{first.name} ({first.phase})" if first.name else f"phase {first.phase}"
    sides = ("the golden", "this launch") if first.kind is Kind.MISSING else ("this launch", "the golden")
    told = f"{what} was observed in {sides[0]} and not, or less often, in {sides[1]}"
    return _Told(cause="control-flow", gaps={"what": told}, details=[], first=first)


def _in_full(golden: Launch, launch: Launch, found: LaunchDivergence, first: Divergence) -> _Told:
    seen = examined(golden, launch, found, first)
    return _Told(
        cause=seen.cause,
        gaps=seen.every_gap,
        details=seen.details,
        first=seen.evidence.first,
        distance=seen.distance,
    )


def _by_phase(golden: Launch, launch: Launch, found: LaunchDivergence, first: Divergence) -> _Told:
    rank = next(rank for rank, divergence in found.by_rank.items() if divergence is first)
    traces = golden.traces[rank], launch.traces[rank]
    cause = BY_PHASE.get(first.phase, "observation")
    if cause == "reduction-order" and not any("grad_local" in trace.phases for trace in traces):
        cause = "gradient"
    details = [_how_many(traces, first)]
    if found.reached:
        details.append(f"{numbered('rank', found.reached)} got the difference through the all-reduce")
    details.append(f"{counted(first.differing, 'phase')} of {first.compared:,} in all steps differ on rank {rank}")
    values = _values(traces, first)
    value = "" if values is None else f" ({values[0]!r} against {values[1]!r})"
    return _Told(
        cause=cause,
        gaps={"name": first.name or f"something in phase {first.phase}", "phase": first.phase, "value": value},
        details=details,
        first=first,
        distance=None if values is None or first.phase != "loss" else distance_between(first.spec, *values),
    )


def _how_many(traces: tuple[Trace, Trace], first: Divergence) -> str:
    told = [trace.specs[trace.spec[row]] for trace, row in zip(traces, first.rows, strict=True) if row is not None]
    told = list(dict.fromkeys(spec.removesuffix(REPLICATED) for spec in told))
    if len(told) > 1:
        return f"{first.phase} has {' in the golden and '.join(told)} now"
    if first.name:
        return f"it is all that {first.phase} has in this step"
    return f"{first.phase} has {told[0]} in this step; which of them differ golden.level=full would tell"


def _values(traces: tuple[Trace, Trace], first: Divergence) -> tuple[float, float] | None:
    numbers = [
        float(trace.value[row])
        for trace, row in zip(traces, first.rows, strict=True)
        if row is not None and trace.valid[row]
    ]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None
