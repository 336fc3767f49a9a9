"""Why ranks of one launch disagree, from what else they observed in that step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ddp_repro.judge.rows import REPLICATED, Index
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

STEP_PLACE: Final = ("optimizer", "step")
"""Phase and name of what is found where ranks do not make the same optimizer steps: no single observation tells it."""

_CAUSES: Final = {
    "init": "replica-initialisation",
    "grad_reduced": "gradient-not-synchronised",
    "param": "replica-parameters",
    "buffer": "replica-buffers",
}
_OF_A_STEP: Final = ("grad_step", "param", "optimizer", "scaler")

Why = tuple[str, Mapping[str, str], list[str]]
"""A cause, the gaps of its sentences, and what else is worth saying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """The first step and phase in which ranks do not hold the same; ``names`` are what they differ in.

    ``absent`` are ranks that have no such observation while others do. ``odd`` are those outside the majority, all
    that were compared where there is none.
    """

    step: int
    phase: str
    names: tuple[str, ...]
    odd: tuple[int, ...]
    has_majority: bool
    absent: tuple[int, ...]
    compared: int


def where_stepped(launch: Launch, found: Disagreement) -> Disagreement:
    """Return the disagreement at the parameters, where what only some ranks have is an optimizer's step.

    Its gradients are observed before, but that the parameters were not stepped is what parts the ranks.
    """
    if not found.absent or found.phase != "grad_step":
        return found
    stepped = {
        rank: {trace.names[trace.name[row]] for row in rows_of(trace, found.step, "param")}
        for rank, trace in launch.traces.items()
    }
    names = set(found.names)
    if all(names & stepped[rank] for rank in found.absent):
        return found
    return replace(found, phase="param")


def rank_cause(launch: Launch, found: Disagreement) -> Why:
    """Return why ranks disagree. The one place that weighs this evidence."""
    if found.absent:
        return _absent(launch, found)
    gaps = {"name": found.names[0], "phase": found.phase, "odd": _odd(launch, found)}
    count = _count(found)
    if found.phase == "grad_reduced":
        return _of_the_reduction(launch, found, gaps)
    if found.phase == "grad_step":
        return _of_the_optimizer(launch, found, gaps)
    if found.phase == "param":
        settings = _hyperparameters(launch, found)
        if settings:
            return "replica-hyperparameters", {**gaps, "hyperparameter": listed(settings)}, [count]
        return _CAUSES["param"], gaps, [count, "the reduced gradients were equal", _since(launch, found)]
    return _CAUSES.get(found.phase, "replica-state"), gaps, [count]


def _odd(launch: Launch, found: Disagreement) -> str:
    ranks = sorted(launch.traces)
    if not found.has_majority:
        return f"{numbered('rank', ranks)} differ, and no majority tells which is wrong"
    others = [rank for rank in ranks if rank not in found.odd]
    return f"{numbered('rank', found.odd)} {_differ(len(found.odd))} from {numbered('rank', others)}"


def _differ(count: int) -> str:
    return "differs" if count == 1 else "differ"


def _count(found: Disagreement) -> str:
    if len(found.names) < 2:
        return ""
    return f"{counted(len(found.names), 'tensor')} of {found.compared:,} concerned: {listed(found.names)}"


def _since(launch: Launch, found: Disagreement) -> str:
    """Tell since when a parameter may differ: it is seen as an optimizer leaves it, and not when a step begins."""
    name, step, phase = found.names[0], found.step - 1, "param" if found.step > 0 else "init"
    if not all(name in last_digests(trace, step, phase) for trace in launch.traces.values()):
        return ""
    seen = f"after step {step}" if step >= 0 else "before step 0"
    return f"it was equal {seen}, and was written to since then: in the optimizer's step, or outside of it before that"


def _absent(launch: Launch, found: Disagreement) -> Why:
    """Tell ranks that do not observe the same in a step."""
    others = [rank for rank in sorted(launch.traces) if rank not in found.absent]
    where = f"on {numbered('rank', others)} and not, or less often, on {numbered('rank', found.absent)}"
    name, phase = found.names[0], found.phase
    seen = f"an optimizer steps {name}" if phase in _OF_A_STEP else f"{name} ({phase}) was observed"
    return "control-flow", {"what": f"in step {found.step} {seen} {where}"}, [_count(found)]


def _of_the_reduction(launch: Launch, found: Disagreement, gaps: Mapping[str, str]) -> Why:
    """Tell reductions that never ended, because they wait for unused parameters, from other ones."""
    unreduced = _unreduced(launch, found)
    unused = _unused(launch, found) if unreduced else []
    if unused:
        return "unused-parameters", {**gaps, "unused": listed(unused)}, unreduced
    gaps = {**gaps, "gradient": "the reduced gradient"}
    return _CAUSES["grad_reduced"], gaps, [_count(found), *unreduced]


def _of_the_optimizer(launch: Launch, found: Disagreement, gaps: Mapping[str, str]) -> Why:
    """Tell gradients that were never reduced, or added to afterwards, from those changed before the optimizer."""
    never = [name for name in found.names if _on_any(launch, found, name, _was_never_reduced)]
    later = [name for name in found.names if _on_any(launch, found, name, _was_added_to)]
    count = _count(found)
    gaps = {**gaps, "gradient": "the gradient that the optimizer gets"}
    if never:
        return _CAUSES["grad_reduced"], gaps, [count, "no backward of this step reduced it"]
    if later:
        return (
            _CAUSES["grad_reduced"],
            gaps,
            [count, "a backward after the reduction added to it: was that in no_sync?"],
        )
    changed = {"is_odd": "depends on the rank", "remedy": "make what they are computed from equal on all ranks"}
    return "gradient-processing", {**gaps, **changed}, [gaps["odd"], count]


def _on_any(launch: Launch, found: Disagreement, name: str, holds: Callable[[Trace, int, str], bool]) -> bool:
    return any(holds(launch.traces[rank], found.step, name) for rank in found.odd)


def _was_never_reduced(trace: Trace, step: int, name: str) -> bool:
    return _last(trace, step, "grad_reduced", name) < 0


def _was_added_to(trace: Trace, step: int, name: str) -> bool:
    return 0 <= _last(trace, step, "grad_reduced", name) < _last(trace, step, "grad_local", name)


def _last(trace: Trace, step: int, phase: str, name: str) -> int:
    """Return the last row of a name in a phase of a step, -1 where there is none."""
    if name not in trace.names:
        return -1
    rows = rows_of(trace, step, phase)
    rows = rows[trace.name[rows] == trace.names.index(name)]
    return int(rows[-1]) if len(rows) else -1


def rows_of(trace: Trace, step: int, phase: str) -> Index:
    """Return the rows of a phase in a step, in execution order."""
    rows: Index = trace.rows_of(step)
    code = trace.phases.index(phase) if phase in trace.phases else -1
    return rows[np.equal(trace.phase[rows], code)]


def _unreduced(launch: Launch, found: Disagreement) -> list[str]:
    """Name the tensors whose reduced gradient is bit for bit the local one, and the ranks: they were never reduced."""
    by_rank: dict[int, list[str]] = {}
    for rank in found.odd:
        trace = launch.traces[rank]
        local, reduced = (last_digests(trace, found.step, phase) for phase in ("grad_local", "grad_reduced"))
        equal = [name for name in found.names if name in local and local[name] == reduced.get(name)]
        if equal:
            by_rank[rank] = equal
    if not by_rank:
        return []
    names = list(dict.fromkeys(name for equal in by_rank.values() for name in equal))
    which = "" if len(names) == len(found.names) else f" of {listed(names)}"
    where = numbered("rank", list(by_rank))
    where = "every rank" if len(by_rank) == len(launch.traces) else where
    return [f"on {where} the reduced gradient{which} equals the local one: it was not reduced"]


def _unused(launch: Launch, found: Disagreement) -> list[str]:
    """Name the parameters of an optimizer that got no gradient on any rank, though all ranks are to hold them equal."""
    stepped: dict[str, None] = {}
    used: set[str] = set()
    for _, trace in sorted(launch.traces.items()):
        rows = rows_of(trace, found.step, "param")
        held = [row for row in rows if trace.specs[trace.spec[row]].endswith(REPLICATED)]
        stepped |= {trace.names[trace.name[row]]: None for row in held}
        used |= last_digests(trace, found.step, "grad_local").keys()
    return [name for name in stepped if name not in used]


def _hyperparameters(launch: Launch, found: Disagreement) -> list[str]:
    """Return the optimizers' settings that are not the same on all ranks in that step."""
    settings = {rank: _groups(launch.traces[rank], found.step) for rank in sorted(launch.traces)}
    names = {name: None for held in settings.values() for name in held}
    return [name for name in names if len({held.get(name) for held in settings.values()}) > 1]


def _groups(trace: Trace, step: int) -> dict[str, bytes]:
    held = last_digests(trace, step, "optimizer")
    return {name: digest for name, digest in held.items() if name.startswith("group")}


def last_digests(trace: Trace, step: int, phase: str) -> dict[str, bytes]:
    """Return by name what a rank last observed of a phase in a step."""
    return {trace.names[trace.name[row]]: trace.digest[row].tobytes() for row in rows_of(trace, step, phase)}
