"""Why data or random states differ first: order, samples, content, and which generator is behind it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.comparison import Divergence, Kind
from ddp_repro.judge.drawn import is_new, library_of
from ddp_repro.judge.evidence import Evidence, Told
from ddp_repro.judge.identity import fields_of
from ddp_repro.judge.passes import FACTS, GUARD, GUARD_FIXED, Pass, passes_of, split_name
from ddp_repro.judge.wording import listed
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

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
    return content_cause(evidence)


def content_cause(evidence: Evidence) -> Told:
    """Return the cause where batches differ and no single generator is behind it."""
    return ("data-stream" if is_stream(evidence) else "data-content"), {"generators": _generators(evidence)}


def is_stream(evidence: Evidence) -> bool:
    """Return whether the batches that differ are of a data set without indices: which samples they hold is not told."""
    parts = split_name(evidence.first.name)
    return parts is not None and not any(f"{parts[0]}.index" in trace.names for trace in evidence.traces)


def _generators(evidence: Evidence) -> str:
    """Return what is to be said of the generators where batches differ."""
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
    return in_pass_a is not None and in_pass_b is not None and _alike(in_pass_a, in_pass_b, len(evidence.a.traces))


_Samples = npt.NDArray[np.uint64]


def _alike(a: _Samples, b: _Samples, shards: int) -> bool:
    """Return whether both hold the same samples; which of them come twice to fill up the shards follows the order."""
    if len(a) != len(b) or np.array_equal(a, b):
        return len(a) == len(b)
    distinct = np.unique(a)
    return len(a) - len(distinct) < shards and np.array_equal(distinct, np.unique(b))


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
        name for name in names if name.endswith(".before") or (split_name(name) is None and is_new(evidence, name))
    )
    return _libraries(begun)


def _libraries(names: Iterable[str]) -> str:
    return listed(dict.fromkeys(library_of(name) for name in names))


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
    cause = "rng-unseeded" if is_new(evidence, name) and not name.endswith(".after") else "rng-draws"
    return cause, {"library": library}
