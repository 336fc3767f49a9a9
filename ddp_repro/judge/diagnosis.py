"""From where two launches first differ to why: the evidence, and the cause that it points to."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.cures import cure, cure_of_twins, remedy, setting_of
from ddp_repro.judge.data_causes import data_cause, hash_seed_unset, is_stream, rng_cause
from ddp_repro.judge.distance import distance_between
from ddp_repro.judge.divergence import LaunchDivergence
from ddp_repro.judge.drawn import as_drawn, owner_of
from ddp_repro.judge.evidence import Evidence, Told
from ddp_repro.judge.findings import Distance, Finding, Witness
from ddp_repro.judge.rows import REPLICATED
from ddp_repro.judge.twin_causes import twin_cause
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_HYPERPARAMETER: Final = re.compile(r"group\d+\.(?!param\d+(\.|$)).+", re.DOTALL)


def diagnose(a: Launch, b: Launch, found: LaunchDivergence, *, witness: Witness = "launches") -> Finding:
    """Return the finding on the first difference between two launches, with its cause and what to change."""
    if found.first is None or found.missing:
        return _missing_rank(a, b, found)
    if found.at_end:
        return _other_end(a, b, found, found.first)
    seen = examined(a, b, found, found.first)
    first, cause, gaps = seen.evidence.first, seen.cause, seen.gaps
    if witness == "twins":
        cause, gaps = twin_cause(seen.evidence, cause, gaps)
        gaps = {"cure": cure_of_twins(setting_of(a, seen.evidence.rank)), **gaps}
    place = Place(
        witness=witness,
        launches=(a.index, b.index),
        step=first.step,
        ranks=found.ranks,
        phase=first.phase,
        name=first.name,
        names=first.names[first.phase],
    )
    told = finding(cause, place, {**_gaps(seen.evidence), **gaps}, detail="; ".join(_details(seen.evidence, cause)))
    return replace(told, distance=_distance(seen.evidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What is known of a first difference: the evidence, its cause, and the gaps of its sentences that it fills."""

    evidence: Evidence
    cause: str
    gaps: Mapping[str, str]

    @property
    def every_gap(self) -> dict[str, str]:
        """All gaps of the sentences on a cause."""
        return {**_gaps(self.evidence), **self.gaps}

    @property
    def details(self) -> list[str]:
        """What else is worth saying, in sentences."""
        return list(_details(self.evidence, self.cause))

    @property
    def distance(self) -> Distance | None:
        """How far two losses are apart."""
        return _distance(self.evidence)


def examined(a: Launch, b: Launch, found: LaunchDivergence, first: Divergence) -> Examined:
    """Return what is known of ``first``, the first difference between two launches."""
    rank = next(rank for rank, divergence in found.by_rank.items() if divergence is first)
    evidence = as_drawn(Evidence(a=a, b=b, found=found, first=first, rank=rank))
    cause, gaps = _cause(evidence)
    return Examined(evidence=evidence, cause=cause, gaps=gaps)


def _missing_rank(a: Launch, b: Launch, found: LaunchDivergence) -> Finding:
    place = Place(witness="launches", launches=(a.index, b.index), ranks=found.missing)
    return finding("missing-rank", place, {"missing": numbered("rank", found.missing)})


def _other_end(a: Launch, b: Launch, found: LaunchDivergence, first: Divergence) -> Finding:
    place = Place(
        witness="launches",
        launches=(a.index, b.index),
        ranks=found.ranks,
        phase=first.phase,
        name=first.name,
        names=first.names[first.phase],
    )
    detail = f"{first.differing:,} of {first.compared:,} final parameters, buffers and validation results differ"
    return finding("other-end", place, {"name": first.name}, detail=detail)


def _gaps(evidence: Evidence) -> dict[str, str]:
    setting = setting_of(evidence.a, evidence.rank)
    return {
        "name": evidence.first.name,
        "phase": evidence.first.phase,
        "value": _values(evidence),
        "is_odd": "is not deterministic",
        "cure": cure(setting),
        "remedy": remedy(setting),
        "content": "other batches are delivered" if is_stream(evidence) else "the same samples have other content",
    }


def _values(evidence: Evidence) -> str:
    values = evidence.values()
    return "" if values is None else f" ({values[0]!r} against {values[1]!r})"


def _cause(evidence: Evidence) -> Told:
    """Return the cause and the gaps of its sentences that it fills itself. The one place that weighs evidence."""
    first = evidence.first
    if first.kind in (Kind.MISSING, Kind.EXTRA):
        return _told_missing(evidence)
    if first.kind is Kind.SPEC:
        return "other-spec", {"what": _specs(evidence)}
    if first.kind is Kind.ORDER:
        return "data-order", {}
    if first.phase == "buffer" and first.spec.endswith(REPLICATED):
        return "forward-buffers", {}
    decide = _BY_PHASE.get(first.phase)
    return decide(evidence) if decide else (_CERTAIN.get(first.phase, "observation"), {})


_CERTAIN: Final = {
    "init": "initialisation",
    "grad_local": "backward-operator",
    "grad_step": "gradient-processing",
    "buffer": "buffers",
    "scaler": "loss-scale",
}


def _told_missing(evidence: Evidence) -> Told:
    side = evidence.b if evidence.first.kind is Kind.EXTRA else evidence.a
    other = evidence.a if side is evidence.b else evidence.b
    seen = f"{evidence.first.name} ({evidence.first.phase}) was observed"
    if evidence.first.step > _last_step(other.traces[evidence.rank]):
        return "control-flow", {"what": f"{seen} only in launch {side.index}, which ran longer"}
    return "control-flow", {"what": f"{seen} in launch {side.index} and not, or less often, in launch {other.index}"}


def _last_step(trace: Trace) -> int:
    return int(trace.step.max(initial=-1))


def _specs(evidence: Evidence) -> str:
    specs = (
        trace.specs[trace.spec[row]]
        for trace, row in zip(evidence.traces, evidence.first.rows, strict=True)
        if row is not None
    )
    return " against ".join(spec.removesuffix(REPLICATED) for spec in specs)


def _forward(evidence: Evidence) -> Told:
    saw_batches = any("data" in trace.phases for trace in evidence.traces)
    return ("forward-operator" if saw_batches else "forward-inputs"), {}


def _grad_reduced(evidence: Evidence) -> Told:
    had_local = any("grad_local" in trace.phases for trace in evidence.traces)
    return ("reduction-order" if had_local else "gradient"), {}


def _param(evidence: Evidence) -> Told:
    changed = [name for name in evidence.names("optimizer") if _HYPERPARAMETER.fullmatch(name)]
    if not changed:
        return "optimizer", {}
    return "hyperparameters", {"hyperparameter": changed[0], "value": _value_of(evidence, changed[0])}


def _optimizer(evidence: Evidence) -> Told:
    name = evidence.first.name
    if _HYPERPARAMETER.fullmatch(name):
        return "hyperparameters", {"hyperparameter": name, "name": "the next step"}
    return "optimizer-state", {}


def _value_of(evidence: Evidence, name: str) -> str:
    values = []
    for trace in evidence.traces:
        if name not in trace.names:
            return ""
        rows = trace.rows_of(evidence.first.step)
        rows = rows[trace.name[rows] == trace.names.index(name)]
        if len(rows) == 0 or not trace.valid[rows[-1]]:
            return ""
        values.append(float(trace.value[rows[-1]]))
    return f" ({values[0]!r} against {values[1]!r})"


_BY_PHASE: Final = {
    "data": data_cause,
    "rng": rng_cause,
    "forward": _forward,
    "loss": _forward,
    "grad_reduced": _grad_reduced,
    "param": _param,
    "optimizer": _optimizer,
}


def _details(evidence: Evidence, cause: str) -> Iterator[str]:
    """Yield what else is worth saying of a divergence, in sentences."""
    found, first = evidence.found, evidence.first
    if first.phase == "rng":
        yield f"it is the generator{owner_of(first.name)}"
    if first.phase == "data" and cause in ("data-order", "data-content", "data-stream") and hash_seed_unset(evidence):
        yield "PYTHONHASHSEED is not set, which reorders sets of strings too"
    if first.phase == "grad_reduced" and any(name.endswith("bucket_layout") for name in first.names["grad_reduced"]):
        yield "the bucket layout differs"
    names = first.names[first.phase]
    if len(names) > 1:
        yield f"{len(names):,} names of {first.phase} differ in this step"
    if len(found.ranks) > 1:
        yield from _other_beginnings(evidence)
    if found.reached and first.kind not in (Kind.MISSING, Kind.EXTRA):
        yield f"{numbered('rank', found.reached)} got the difference through the all-reduce"
    yield f"{counted(first.differing, 'row')} of {first.compared:,} differ on rank {evidence.rank}"


def _other_beginnings(evidence: Evidence) -> Iterator[str]:
    """Yield where blamed ranks begin to differ, if not all in the same phase."""
    for rank in evidence.found.ranks:
        other = evidence.found.by_rank[rank]
        if rank != evidence.rank and other.phase != evidence.first.phase:
            yield f"rank {rank} begins at {other.phase} of {other.name}"


def _distance(evidence: Evidence) -> Distance | None:
    values = evidence.values()
    if evidence.first.phase != "loss" or evidence.first.kind is not Kind.VALUE or values is None:
        return None
    return distance_between(evidence.first.spec, *values)
