"""From where two launches first differ to why: the evidence, and the cause that it points to."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.distance import distance_between
from ddp_repro.judge.divergence import LaunchDivergence
from ddp_repro.judge.findings import Distance, Finding
from ddp_repro.judge.identity import fields_of
from ddp_repro.judge.passes import FACTS, Pass, passes_of, split_name
from ddp_repro.judge.rows import REPLICATED
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_HYPERPARAMETER: Final = re.compile(r"group\d+\.(?!param\d+(\.|$)).+", re.DOTALL)
_GENERATOR: Final = re.compile(r"(?:(worker\d+|main)\.)?(.+?)(?:\.(before|after))?", re.DOTALL)
_DISCRETE: Final = ("int", "uint", "bool", "text", "str", "bytes")
_UNSET: Final = (None, "", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a divergence: both launches, the rank on which it is first, and that rank's traces."""

    a: Launch
    b: Launch
    found: LaunchDivergence
    first: Divergence
    rank: int

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """The traces of the rank that differs first."""
        return self.a.traces[self.rank], self.b.traces[self.rank]

    def names(self, phase: str) -> tuple[str, ...]:
        """Return the names of ``phase`` that differ in the first step on that rank."""
        return self.first.names.get(phase, ())

    def values(self) -> tuple[float, float] | None:
        """Return the numbers that differ, where both rows hold one."""
        row_a, row_b = self.first.rows
        if row_a is None or row_b is None:
            return None
        trace_a, trace_b = self.traces
        if not (trace_a.valid[row_a] and trace_b.valid[row_b]):
            return None
        return float(trace_a.value[row_a]), float(trace_b.value[row_b])


def diagnose(a: Launch, b: Launch, found: LaunchDivergence) -> Finding:
    """Return the finding on the first difference between two launches, with its cause and what to change."""
    if found.first is None or found.missing:
        return _missing_rank(a, b, found)
    rank = next(rank for rank, divergence in found.by_rank.items() if divergence is found.first)
    evidence = Evidence(a=a, b=b, found=found, first=found.first, rank=rank)
    cause, gaps = _cause(evidence)
    first = found.first
    place = Place(
        witness="launches",
        launches=(a.index, b.index),
        step=first.step,
        ranks=found.ranks,
        phase=first.phase,
        name=first.name,
        names=first.names[first.phase],
    )
    told = finding(cause, place, {**_gaps(evidence), **gaps}, detail="; ".join(_details(evidence, cause)))
    return replace(told, distance=_distance(evidence))


def _missing_rank(a: Launch, b: Launch, found: LaunchDivergence) -> Finding:
    place = Place(witness="launches", launches=(a.index, b.index), ranks=found.missing)
    return finding("missing-rank", place, {"missing": numbered("rank", found.missing)})


def _gaps(evidence: Evidence) -> dict[str, str]:
    return {"name": evidence.first.name, "phase": evidence.first.phase, "value": _values(evidence)}


def _values(evidence: Evidence) -> str:
    values = evidence.values()
    return "" if values is None else f" ({values[0]!r} against {values[1]!r})"


_Told = tuple[str, Mapping[str, str]]


def _cause(evidence: Evidence) -> _Told:
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
    "forward": "forward-operator",
    "loss": "forward-operator",
    "grad_local": "backward-operator",
    "grad_step": "gradient-processing",
    "buffer": "buffers",
    "scaler": "loss-scale",
}


def _told_missing(evidence: Evidence) -> _Told:
    side = evidence.b if evidence.first.kind is Kind.EXTRA else evidence.a
    other = evidence.a if side is evidence.b else evidence.b
    if evidence.first.step > _last_step(other.traces[evidence.rank]):
        return "control-flow", {"what": f"only in launch {side.index}, which ran longer"}
    return "control-flow", {"what": f"in launch {side.index} and not, or less often, in launch {other.index}"}


def _last_step(trace: Trace) -> int:
    return int(trace.step.max(initial=-1))


def _specs(evidence: Evidence) -> str:
    specs = (
        trace.specs[trace.spec[row]]
        for trace, row in zip(evidence.traces, evidence.first.rows, strict=True)
        if row is not None
    )
    return " against ".join(spec.removesuffix(REPLICATED) for spec in specs)


def _data(evidence: Evidence) -> _Told:
    parts = split_name(evidence.first.name)
    what = parts[1] if parts else ""
    if what == "index":
        return ("data-order" if _same_samples(evidence) else "data-indices"), {}
    if what in FACTS or what == "end":
        return "data-source", {}
    library = _unseeded(evidence)
    if library:
        return "unseeded-library", {"library": library}
    if _hash_seed_unset(evidence) and _only_discrete(evidence):
        return "hash-seed", {}
    return "data-content", {}


def _same_samples(evidence: Evidence) -> bool:
    """Return whether both launches visit the same samples, in the batches of the step or in the whole pass."""
    if evidence.first.kind is not Kind.VALUE:
        return False
    in_step_a, in_step_b = (np.sort(_samples_of_step(trace, evidence.first)) for trace in evidence.traces)
    if np.array_equal(in_step_a, in_step_b):
        return True
    in_pass_a, in_pass_b = (_samples_of_pass(launch, evidence) for launch in (evidence.a, evidence.b))
    return in_pass_a is not None and in_pass_b is not None and np.array_equal(in_pass_a, in_pass_b)


_Samples = npt.NDArray[np.uint64]


def _samples_of_step(trace: Trace, first: Divergence) -> _Samples:
    rows = trace.rows_of(first.step)
    samples: _Samples = trace.digest[rows[trace.name[rows] == trace.names.index(first.name)], 0]
    return samples


def _samples_of_pass(launch: Launch, evidence: Evidence) -> _Samples | None:
    """Return the sorted samples of the pass that differs, over all ranks; ``None`` where one did not exhaust it."""
    row = evidence.first.rows[0 if launch is evidence.a else 1]
    parts = split_name(evidence.first.name)
    own = [one for one in passes_of(launch.traces[evidence.rank]) if parts and one.loader == parts[0]]
    current = next((one for one in reversed(own) if row is not None and one.start <= row), None)
    if current is None:
        return None
    same = [one for trace in launch.traces.values() for one in passes_of(trace) if _is_same_pass(one, current)]
    if len(same) != len(launch.traces) or not all(one.whole for one in same):
        return None
    return np.sort(np.concatenate([one.samples for one in same]))


def _is_same_pass(one: Pass, other: Pass) -> bool:
    return (one.loader, one.number) == (other.loader, other.number)


def _unseeded(evidence: Evidence) -> str:
    """Return the libraries whose generator differs in the step although nobody could have drawn from it differently."""
    names = evidence.names("rng")
    started = [name for name in names if name.endswith(".before")] or [
        name for name in names if split_name(name) is None and _is_new(evidence, name)
    ]
    return listed(dict.fromkeys(_library(name) for name in started or names))


def _is_new(evidence: Evidence, name: str) -> bool:
    """Return whether a generator was never seen before the first step that differs."""
    trace = evidence.traces[0]
    seen = trace.step[trace.name == trace.names.index(name)] if name in trace.names else np.empty(0, np.int32)
    return not bool((seen < evidence.first.step).any())


def _library(name: str) -> str:
    """Return what a generator is called: ``X[0].worker1.numpy.before`` is numpy."""
    parts = split_name(name)
    match = _GENERATOR.fullmatch(parts[1] if parts else name)
    assert match is not None, "the pattern matches every name"
    return match[2]


def _worker(name: str) -> str:
    parts = split_name(name)
    match = _GENERATOR.fullmatch(parts[1]) if parts else None
    return f" of {parts[0]}'s {match[1]}" if parts and match and match[1] else " of the main process"


def _hash_seed_unset(evidence: Evidence) -> bool:
    return any(_has_no_hash_seed(launch.identities.get(evidence.rank, {})) for launch in (evidence.a, evidence.b))


def _has_no_hash_seed(identity: Mapping[str, Any]) -> bool:
    seeds = [value for name, value in fields_of(identity).items() if name.rpartition(".")[2] == "PYTHONHASHSEED"]
    return bool(identity) and all(seed in _UNSET for seed in seeds)


def _only_discrete(evidence: Evidence) -> bool:
    """Return whether only whole numbers and texts differ, as labels do: noise would move real numbers."""
    first, names = evidence.first, set(evidence.names("data"))
    trace = evidence.traces[0]
    rows = trace.rows_of(first.step)
    specs = {trace.specs[trace.spec[row]] for row in rows if trace.names[trace.name[row]] in names}
    return all(spec.startswith(_DISCRETE) for spec in specs)


def _rng(evidence: Evidence) -> _Told:
    name = evidence.first.name
    library = _library(name)
    cause = "rng-unseeded" if _is_new(evidence, name) and not name.endswith(".after") else "rng-draws"
    return cause, {"library": library}


def _grad_reduced(evidence: Evidence) -> _Told:
    had_local = any("grad_local" in trace.phases for trace in evidence.traces)
    return ("reduction-order" if had_local else "gradient"), {}


def _param(evidence: Evidence) -> _Told:
    changed = [name for name in evidence.names("optimizer") if _HYPERPARAMETER.fullmatch(name)]
    if not changed:
        return "optimizer", {}
    return "hyperparameters", {"hyperparameter": changed[0], "value": _value_of(evidence, changed[0])}


def _optimizer(evidence: Evidence) -> _Told:
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
    "data": _data,
    "rng": _rng,
    "grad_reduced": _grad_reduced,
    "param": _param,
    "optimizer": _optimizer,
}


def _details(evidence: Evidence, cause: str) -> Iterator[str]:
    """Yield what else is worth saying of a divergence, in sentences."""
    found, first = evidence.found, evidence.first
    if first.phase == "rng":
        yield f"it is the generator{_worker(first.name)}"
    if first.phase == "data" and cause in ("data-order", "data-content") and _hash_seed_unset(evidence):
        yield "PYTHONHASHSEED is not set, which reorders sets of strings too"
    if first.phase == "grad_reduced" and any(name.endswith("bucket_layout") for name in first.names["grad_reduced"]):
        yield "the bucket layout differs"
    names = first.names[first.phase]
    if len(names) > 1:
        yield f"{len(names):,} names of {first.phase} differ in this step"
    if len(found.ranks) > 1:
        yield from _other_beginnings(evidence)
    if found.reached:
        yield f"{numbered('rank', found.reached)} got the difference through the all-reduce"
    yield f"{counted(first.differing, 'row')} of {first.compared:,} differ on rank {evidence.rank}"


def _other_beginnings(evidence: Evidence) -> Iterator[str]:
    """Yield where blamed ranks begin to differ, if not all in the same phase."""
    for rank in evidence.found.ranks:
        other = evidence.found.by_rank[rank]
        if other.phase != evidence.first.phase:
            yield f"rank {rank} begins at {other.phase} of {other.name}"


def _distance(evidence: Evidence) -> Distance | None:
    values = evidence.values()
    if evidence.first.phase != "loss" or evidence.first.kind is not Kind.VALUE or values is None:
        return None
    return distance_between(evidence.first.spec, *values)
