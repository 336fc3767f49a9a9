"""Why launches cannot be judged: what is missing, not whole, not comparable, or never observed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ddp_repro.judge.finals import left_no_end, no_end_told, was_observed
from ddp_repro.judge.findings import FieldDifference
from ddp_repro.judge.identity import in_words, refused
from ddp_repro.judge.wording import listed, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace
from ddp_repro.trace.schema import FULL

_TRAINING: Final = ("loss", "grad_local", "grad_reduced", "grad_step", "param")
_EVERY_STEP: Final = ("init", "data", "rng", "loss", "grad_local", "grad_reduced", "grad_step", "param", "optimizer")
_FEW_RANKS: Final = {
    1: "one rank: nothing was reduced, so nothing is said of reductions, shards and replicas; use three or more",
    2: "two ranks hide every fault of the order of reductions (a + b = b + a); use three or more",
}
_FINISHED: Final = ("finished", "max_steps")
_DETAILED: Final = ("module", "op")
_DETAIL: Final = ("forward", "op", "collective")


def problems_of(launches: Sequence[Launch], *, is_ignoring: bool = False) -> dict[int, list[str]]:
    """Return for each launch, by its number, why it cannot be judged.

    Launches that were not to be observed are judged by what they ended with, where another one was observed.
    """
    observed = [launch for launch in launches if was_observed(launch)]
    by_end = len(observed) not in (0, len(launches))
    return {launch.index: launch_problems(launch, by_end=by_end, is_ignoring=is_ignoring) for launch in launches}


def launch_problems(launch: Launch, *, by_end: bool = False, is_ignoring: bool = False) -> list[str]:
    """Return the reasons for which one launch cannot be judged, one sentence each.

    Where nothing was said when it was loaded, what its traces say themselves is checked, for launches that were put
    together otherwise, and whether they hold any training at all; with ``by_end``, whether it is known what the ranks
    ended with. One that was ended early is as sound as what it wrote until then.
    """
    problems = [_renumbered(launch, problem) for problem in launch.problems]
    looks: list[Callable[[Launch], Iterator[str]]] = [_missing, _not_whole]
    looks += [_unended] if by_end else []
    looks += [] if by_end and not was_observed(launch) else [_all_ignored if is_ignoring else _unobserved]
    looks += [] if is_ignoring else [_unstepped]
    for look in looks:
        # What follows from a problem that is known is not worth a sentence of its own.
        problems = problems or list(look(launch))
    return problems


def _renumbered(launch: Launch, problem: str) -> str:
    """Return a sentence from loading, which knows the launch by its folder: with it where the number is another."""
    return problem if launch.path.name == f"launch-{launch.index}" else f"{launch.path}: {problem}"


def common_problems(
    launches: Sequence[Launch], differences: Sequence[FieldDifference], *, may_capture_differ: bool = False
) -> list[str]:
    """Return the reasons for which launches cannot be compared with each other.

    Variants may be captured at different levels, which their identities tell of.
    """
    numbers = [launch.index for launch in launches]
    whole = [launch for launch in launches if not launch.was_cut]
    problems = [] if any(launch.problems for launch in launches) else left_no_end(whole)
    problems += [f"the identities differ: {in_words(difference, numbers)}" for difference in refused(differences)]
    paths = [launch.path.resolve() for launch in launches]
    again = dict.fromkeys(path for path in paths if paths.count(path) > 1)
    problems += [f"{path} was given {paths.count(path)} times: no launch is compared with itself" for path in again]
    problems += [] if again else _copies(launches)
    levels = {trace.meta.capture: launch.index for launch in launches for trace in launch.traces.values()}
    if len(levels) > 1 and not may_capture_differ:
        told = listed(f"{level} in launch {number}" for level, number in levels.items())
        problems.append(f"the launches were not observed alike: capture={told}")
    return problems


def _copies(launches: Sequence[Launch]) -> Iterator[str]:
    """Yield what was given as several launches and is one, copied to another folder."""
    known: dict[str, Launch] = {}
    for launch in launches:
        name = launch.record.id if launch.record is not None else ""
        first = known.setdefault(name, launch) if name else launch
        if first is not launch:
            yield f"{launch.path} is a copy of {first.path}: no launch is compared with itself"


def usable_before(launches: Sequence[Launch], problems: Mapping[int, Sequence[str]]) -> int | None:
    """Return the step below which all launches are there, where one of them is not sound; ``None`` where all are."""
    if not any(problems[launch.index] for launch in launches):
        return None
    traces = [trace for launch in launches if was_observed(launch) for trace in launch.traces.values()]
    return min(map(_last_step, traces), default=0)


def _last_step(trace: Trace) -> int:
    return int(trace.step[-1]) if len(trace) else 0


def _missing(launch: Launch) -> Iterator[str]:
    where = f"launch {launch.index}"
    if not launch.traces:
        yield f"{where} has no traces"
        return
    world_size = launch.record.world_size if launch.record else max(t.meta.world_size for t in launch.traces.values())
    absent = [rank for rank in range(world_size) if rank not in launch.traces]
    if absent:
        yield f"{where}: the trace of {numbered('rank', absent)} is missing"
    unidentified = [rank for rank in launch.traces if rank not in launch.identities]
    if unidentified:
        yield f"{where}: the identity of {numbered('rank', unidentified)} is missing"
    if launch.record is None:
        yield f"{where}: how it ended is unknown"
    elif launch.record.outcome != "finished" and not launch.was_cut:
        yield f"{where} did not finish: {launch.record.outcome}"


def _not_whole(launch: Launch) -> Iterator[str]:
    for rank, trace in sorted(launch.traces.items()):
        if trace.damage is not None and not launch.was_cut:
            yield f"launch {launch.index}, rank {rank}: {trace.damage}"
        elif trace.end not in _FINISHED and not launch.was_cut:
            yield f"launch {launch.index}, rank {rank}: its trace was closed as {trace.end!r}"
        if trace.meta.rank != rank:
            yield f"launch {launch.index}, rank {rank}: its trace is that of rank {trace.meta.rank}"


def _unobserved(launch: Launch) -> Iterator[str]:
    blind = [rank for rank, trace in sorted(launch.traces.items()) if not _observed_training(trace)]
    if not blind:
        return
    if all(launch.traces[rank].meta.capture == "off" for rank in blind):
        yield f"nothing was observed in launch {launch.index}: capture=off"
    else:
        where = "" if len(blind) == len(launch.traces) else f" on {numbered('rank', blind)}"
        yield f"nothing was observed in launch {launch.index}{where}: no loss, gradient or parameter of any step"


def _unstepped(launch: Launch) -> Iterator[str]:
    """Yield why nothing can be said where what the steps left was never seen."""
    ranks = [rank for rank, trace in sorted(launch.traces.items()) if not _observed(trace, ("param",))]
    if ranks and was_observed(launch):
        yield (
            f"launch {launch.index}, {numbered('rank', ranks)}: no parameter was observed after a step; only "
            "optimizers that are torch.optim.Optimizer are seen"
        )


def _all_ignored(launch: Launch) -> Iterator[str]:
    """Yield why nothing is left to be judged, where some observations are ignored."""
    for problem in _unobserved(launch):
        yield f"{problem} (that judge.ignore leaves)"


def _unended(launch: Launch) -> Iterator[str]:
    problem = no_end_told(launch)
    if problem:
        yield problem


def blind_spots(launches: Sequence[Launch]) -> list[str]:
    """Return notes on what equal launches say nothing of: phases that no rank observed, worlds of too few ranks."""
    traces = [trace for launch in launches for trace in launch.traces.values()]
    if not any(_observed_training(trace) for trace in traces):
        return []
    seen = {trace.phases[code] for trace in traces for code in np.unique(trace.phase)}
    unseen = [phase for phase in _EVERY_STEP if phase not in seen]
    notes = [f"never observed, so not judged: {listed(unseen, at_most=len(unseen))}"] if unseen else []
    sizes = sorted({trace.meta.world_size for trace in traces})
    return [*notes, *_blind_in_detail(traces), *(_FEW_RANKS[size] for size in sizes if size in _FEW_RANKS)]


def _blind_in_detail(traces: Sequence[Trace]) -> Iterator[str]:
    """Yield why modules and operators that were to be observed were not, or only so far."""
    wanted = [trace for trace in traces if trace.meta.capture in _DETAILED]
    if wanted and not any(_observed(trace, _DETAIL) for trace in wanted):
        yield (
            f"capture={wanted[0].meta.capture}, and no module or operator was observed: does training come to "
            "capture.steps?"
        )
    full = [step for trace in wanted if FULL in trace.names for step in _steps_of(trace, FULL)]
    if full:
        yield f"{FULL} was used up in step {min(full)}: no modules and operators were observed any more"


def _steps_of(trace: Trace, name: str) -> list[int]:
    steps: list[int] = trace.step[trace.name == trace.names.index(name)].tolist()
    return steps


def _observed_training(trace: Trace) -> bool:
    return _observed(trace, _TRAINING)


def _observed(trace: Trace, phases: Sequence[str]) -> bool:
    codes = [code for code, phase in enumerate(trace.phases) if phase in phases]
    return bool(np.isin(trace.phase, codes).any())
