"""Why data or random states differ first: order, samples, content, and which generator is behind it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.evidence import Evidence, Told
from ddp_repro.judge.identity import fields_of
from ddp_repro.judge.passes import FACTS, GUARD, GUARD_FIXED, Pass, passes_of, split_name
from ddp_repro.judge.wording import listed
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_GENERATOR: Final = re.compile(r"(?:(worker\d+|main)\.)?(.+?)(?:\.(before|after|seeded))?", re.DOTALL)
_DISCRETE: Final = ("int", "uint", "bool", "text", "str", "bytes")
_UNSET: Final = (None, "", "random")


def data_cause(evidence: Evidence) -> Told:
    """Return the cause where data differs first."""
    parts = split_name(evidence.first.name)
    what = parts[1] if parts else ""
    if what == "index":
        return ("data-order" if _same_samples(evidence) else "data-indices"), {}
    if what in (*FACTS, "end", GUARD, GUARD_FIXED):
        return "data-source", {}
    library = _unseeded(evidence)
    if library:
        return "unseeded-library", {"library": library}
    if hash_seed_unset(evidence) and _only_discrete(evidence) and not _on_one_rank(evidence):
        return "hash-seed", {}
    return "data-content", {"generators": generators(evidence)}


def generators(evidence: Evidence) -> str:
    """Return what is to be said of the generators where the content of the same samples differs."""
    names = evidence.names("rng")
    if names:
        return f", and {_libraries(names)} drew more or fewer numbers for it"
    return ", with every recorded generator equal"


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
    """Return the libraries whose generator differs in the step although nobody had drawn from it differently before."""
    names = evidence.names("rng")
    begun = (
        name for name in names if name.endswith(".before") or (split_name(name) is None and _is_new(evidence, name))
    )
    return _libraries(begun)


def drawn_from(evidence: Evidence) -> str | None:
    """Return the main process's generator in whose other state a batch of the same samples was drawn, if there is one.

    That is one which was seen equal before and no longer is with this batch, of a loader without workers.
    """
    parts = split_name(evidence.first.name)
    if parts is None or evidence.first.phase != "data" or not parts[1].startswith("batch"):
        return None
    fetching = (_last_value(trace, f"{parts[0]}.num_workers", evidence.first) for trace in evidence.traces)
    if evidence.first.kind is not Kind.VALUE or any(workers != 0 for workers in fetching):
        return None
    mains = (name for name in evidence.names("rng") if split_name(name) is None and not _is_new(evidence, name))
    return next(mains, None)


def _last_value(trace: Trace, name: str, first: Divergence) -> float | None:
    if name not in trace.names:
        return None
    rows = np.flatnonzero((trace.name == trace.names.index(name)) & (trace.step <= first.step))
    return float(trace.value[rows[-1]]) if len(rows) else None


def row_of(trace: Trace, phase: str, name: str, step: int) -> int:
    """Return the first row of a name in a step; there must be one."""
    rows = trace.rows_of(step)
    here = (trace.phase[rows] == trace.phases.index(phase)) & (trace.name[rows] == trace.names.index(name))
    return int(rows[here][0])


def _libraries(names: Iterable[str]) -> str:
    return listed(dict.fromkeys(library_of(name) for name in names))


def _is_new(evidence: Evidence, name: str) -> bool:
    """Return whether a generator was never seen before the first step that differs."""
    trace = evidence.traces[0]
    seen = trace.step[trace.name == trace.names.index(name)] if name in trace.names else np.empty(0, np.int32)
    return not bool((seen < evidence.first.step).any())


def library_of(name: str) -> str:
    """Return what a generator is called: ``X[0].worker1.numpy.before`` is numpy."""
    parts = split_name(name)
    match = _GENERATOR.fullmatch(parts[1] if parts else name)
    assert match is not None, "the pattern matches every name"
    return match[2]


def owner_of(name: str) -> str:
    """Return whose generator it is, as the end of a sentence."""
    parts = split_name(name)
    match = _GENERATOR.fullmatch(parts[1]) if parts else None
    return f" of {parts[0]}'s {match[1]}" if parts and match and match[1] else " of the main process"


def hash_seed_unset(evidence: Evidence) -> bool:
    """Return whether strings were hashed by another seed in each process."""
    return any(_has_no_hash_seed(launch.identities.get(evidence.rank, {})) for launch in (evidence.a, evidence.b))


def _has_no_hash_seed(identity: Mapping[str, Any]) -> bool:
    seeds = [value for name, value in fields_of(identity).items() if name.rpartition(".")[2] == "PYTHONHASHSEED"]
    return bool(identity) and all(seed in _UNSET for seed in seeds)


def _on_one_rank(evidence: Evidence) -> bool:
    """Return whether one rank of several is blamed alone: each process hashes by a seed of its own."""
    return len(evidence.found.ranks) == 1 < len(evidence.a.traces)


def _only_discrete(evidence: Evidence) -> bool:
    """Return whether only whole numbers and texts differ, as labels do: noise would move real numbers."""
    first, names = evidence.first, set(evidence.names("data"))
    trace = evidence.traces[0]
    rows = trace.rows_of(first.step)
    specs = {trace.specs[trace.spec[row]] for row in rows if trace.names[trace.name[row]] in names}
    return all(spec.startswith(_DISCRETE) for spec in specs)


def rng_cause(evidence: Evidence) -> Told:
    """Return the cause where a generator's state differs first."""
    name = evidence.first.name
    library = library_of(name)
    cause = "rng-unseeded" if _is_new(evidence, name) and not name.endswith(".after") else "rng-draws"
    return cause, {"library": library}
