"""A launch that goes on from a checkpoint, and the one that was never stopped, as they are compared.

Rows stand for each other from the step on from which the launch goes on. What only says that a process began anew is
left out: the number of the pass, batches that were fetched to be skipped, the states of workers that are new (what
they draw shows in the batches), the layout of DDP's buckets (what it does shows in the gradients).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ddp_repro.judge.generator_states import (
    boundary_states,
    idle_names,
    passes_begun,
    without_generators,
    without_harmless_states,
    without_undrawn,
)
from ddp_repro.judge.ignored import rows_kept
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.resumed_at import begins_at
from ddp_repro.judge.resumed_pass import by_content, told_again
from ddp_repro.judge.rows import LAYOUT, NO_ROWS, Index, Mask, in_phases
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.observations import COLUMNS
from ddp_repro.trace.reader import Trace

_OF_THE_PROCESS: Final = ("pass", "passed_over", "length", "num_workers", "end", "guard", "guard_fixed")
_OF_WORKERS: Final = re.compile(r"worker\d+\..*", re.DOTALL)
_HOLDER: Final = re.compile(r"(?:copy|scheduler)\.[^.]*\[\d+\]|scaler(?=\.)")
_KIND: Final = re.compile(r"\[\d+\]$")
_BEFORE_THE_STEP: Final = ("data", "rng", "forward", "loss", "grad_local", "grad_reduced", "buffer")
_LEFT_BY_A_STEP: Final = ("grad_step", "param", "buffer", "optimizer", "scaler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both launches from step ``begins`` on, and the ranks whose first reduction had buckets of another layout.

    ``whole`` is the uninterrupted launch with what came before. ``one_sided`` names copies of the model and schedulers
    that only one of both had as its first step began: they are left out. ``idle`` names, by rank, the generators whose
    states differ and that neither launch drew from after that: their rows are left out.
    """

    straight: Launch
    resumed: Launch
    whole: Launch
    begins: int
    other_layout: tuple[int, ...]
    idle: dict[int, tuple[str, ...]]
    one_sided: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lenient:
    """That what moves no bit may differ, in the steps below ``before`` (``None``: to the end)."""

    before: int | None


def sides(straight: Launch, resumed: Launch, expected: int | None, lenient: Lenient | None = None) -> Sides:
    """Return both launches as they are compared; ``expected`` is where the second one should go on, where known.

    Where it is ``lenient``, what moves no bit may differ: how the batches of the pass under way were said, where they
    hold the same, and generators that moved only as a loader without workers began a pass (it draws a seed).
    """
    begins = begins_at(straight, resumed, expected)
    ranks = sorted(straight.traces.keys() & resumed.traces.keys())
    shifted = {rank: _shifted(resumed.traces[rank], begins) for rank in ranks}
    other_layout = tuple(rank for rank in ranks if _other_layout(straight.traces[rank], shifted[rank], begins))
    traces_a, traces_b = dict(straight.traces), dict(resumed.traces)
    idle: dict[int, tuple[str, ...]] = {}
    one_sided: dict[str, None] = {}
    for rank in ranks:
        one, other = _compared(straight.traces[rank], shifted[rank], begins, lenient)
        alone = _one_sided(one, other)
        one_sided.update(dict.fromkeys(alone))
        one, other = (_without_boundary_of(trace, alone) for trace in (one, other))
        begun = [
            passes_begun(trace) if lenient is not None else NO_ROWS for trace in (straight.traces[rank], shifted[rank])
        ]
        idle[rank] = tuple(idle_names(one, other, begun))
        traces_a[rank], traces_b[rank] = (without_generators(trace, idle[rank]) for trace in (one, other))
    return Sides(
        straight=replace(straight, traces=traces_a),
        resumed=replace(resumed, traces=traces_b),
        whole=straight,
        begins=begins,
        other_layout=other_layout,
        idle={rank: names for rank, names in idle.items() if names},
        one_sided=tuple(one_sided),
    )


def _shifted(trace: Trace, begins: int) -> Trace:
    counted = trace.step[trace.step >= 0]
    if len(counted) == 0 or counted[0] > 0:
        return trace
    return replace(trace, step=np.where(trace.step >= 0, trace.step + np.int32(begins), trace.step))


def _named(trace: Trace, expression: re.Pattern[str]) -> Mask:
    return np.isin(trace.name, [code for code, name in enumerate(trace.names) if expression.fullmatch(name)])


def _other_layout(a: Trace, b: Trace, step: int) -> bool:
    told = []
    for trace in (a, b):
        rows = np.flatnonzero(_named(trace, LAYOUT) & (trace.step == step))
        told.append({trace.names[trace.name[row]]: trace.digest[row].tobytes() for row in rows})
    return told[0] != told[1]


def _compared(a: Trace, b: Trace, begins: int, lenient: Lenient | None) -> tuple[Trace, Trace]:
    a, b = _carried_forward(a, b, begins), rows_kept(b, (b.step >= begins) & ~in_phases(b, ("init",)))
    a, b = (_alike_named(rows_kept(trace, ~_of_the_process(trace))) for trace in (a, b))
    a, b = _first_boundary_alone(a, begins), _first_boundary_alone(b, begins)
    b = _without_discarded(a, b, begins)
    if lenient is not None:
        a, b = by_content(a, b, begins, lenient.before)
    return without_undrawn(*without_harmless_states(a, b, begins))


def _of_the_process(trace: Trace) -> Mask:
    """Return the rows that say that a process, a pass or its workers are new, and those of bucket layouts."""
    codes = []
    for code, name in enumerate(trace.names):
        parts = split_name(name)
        if parts is not None and (parts[1] in _OF_THE_PROCESS or _OF_WORKERS.fullmatch(parts[1])):
            codes.append(code)
    return np.isin(trace.name, codes) | _named(trace, LAYOUT)


def _carried_forward(a: Trace, b: Trace, begins: int) -> Trace:
    """Return the uninterrupted trace from a step on, with what was said of the pass under way when it began.

    A resumed launch begins that pass again and says it again: epoch, order, the sampler's rank.
    """
    kept = (a.step >= begins) & ~in_phases(a, ("init",))
    kept[: _round_begin(a, begins)] = False
    again = told_again(a, b, begins)
    rows = np.concatenate([again, np.flatnonzero(kept)])
    step = np.concatenate([np.full(len(again), begins, np.int32), a.step[kept]])
    return replace(a, **{column: getattr(a, column)[rows] for column in COLUMNS if column != "step"}, step=step)


def _round_begin(trace: Trace, step: int) -> int:
    """Return the row from which on all optimizers are about to make the step.

    The optimizer that steps first counts; what others do after it (a generator after its discriminator) stands with the
    next step, and is done when a training is stopped.
    """
    gradients = np.flatnonzero(in_phases(trace, ("grad_step",)))
    first = int(trace.step[gradients].min(initial=step))
    leaders = trace.name[gradients[trace.step[gradients] == first]]
    own = gradients[trace.step[gradients] == step]
    of_leader = np.isin(trace.name[own], leaders)
    earlier = own[: int(np.argmax(of_leader)) if of_leader.any() else len(own)]
    if len(earlier) == 0 or step == first:
        return 0
    left = np.flatnonzero(~in_phases(trace, _LEFT_BY_A_STEP))
    return int(left[np.searchsorted(left, earlier[-1], side="right")]) if left[-1] > earlier[-1] else len(trace)


def _alike_named(trace: Trace) -> Trace:
    """Return the trace with loaders of a kind numbered in the order in which they are met, as a new process does."""
    names, met = list(trace.names), dict[str, str]()
    in_order = trace.name[np.sort(np.unique(trace.name, return_index=True)[1])]
    for code in in_order:
        parts = split_name(trace.names[code])
        if parts is None:
            continue
        kind = _KIND.sub("", parts[0])
        number = sum(1 for known in met if _KIND.sub("", known) == kind)
        met.setdefault(parts[0], f"{kind}[{number}]")
        names[code] = f"{met[parts[0]]}.{parts[1]}"
    return replace(trace, names=names)


def without_boundaries(launch: Launch) -> Launch:
    """Return a launch without what was recorded of boundaries, for one that was launched without them."""
    traces = {
        rank: rows_kept(trace, ~(in_phases(trace, ("boundary",)) | boundary_states(trace)))
        for rank, trace in launch.traces.items()
    }
    return replace(launch, traces=traces)


def _first_boundary_alone(trace: Trace, begins: int) -> Trace:
    """Leave out later boundaries, and of the first step all but the last that was told: state was loaded by then."""
    told = in_phases(trace, ("boundary",))
    rows = np.flatnonzero(told & (trace.step == begins))
    gaps = np.flatnonzero(np.diff(rows) > 1)
    last = rows[gaps[-1] + 1 :] if len(gaps) else rows
    kept = ~told
    kept[last] = True
    return rows_kept(trace, kept)


def _without_discarded(a: Trace, b: Trace, begins: int) -> Trace:
    """Leave out of the first resumed step what came before state was loaded: of each name the last rows count.

    Batches are fetched to be skipped, and a forward and a backward are discarded so that DDP lays out its buckets.
    """
    counts = {name: len(rows) for name, rows in _by_name(a, begins).items()}
    left = np.zeros(len(b), np.bool_)
    for name, rows in _by_name(b, begins).items():
        kept = counts.get(name, 0)
        if kept:
            left[rows[: max(0, len(rows) - kept)]] = True
    return rows_kept(b, ~left)


def _by_name(trace: Trace, step: int) -> dict[tuple[str, bool], Index]:
    """Return the rows of a step by name; a generator's states at the boundary are not those with a batch."""
    at_boundary = boundary_states(trace)
    rows = np.flatnonzero((trace.step == step) & in_phases(trace, _BEFORE_THE_STEP))
    found: dict[tuple[str, bool], Index] = {}
    for told in (False, True):
        own = rows[at_boundary[rows] == told]
        for code in np.unique(trace.name[own]):
            for phase in np.unique(trace.phase[own[trace.name[own] == code]]):
                mine = own[(trace.name[own] == code) & (trace.phase[own] == phase)]
                found[f"{trace.phases[phase]} {trace.names[code]}", told] = mine
    return found


def _one_sided(a: Trace, b: Trace) -> list[str]:
    """Return the copies, schedulers and scalers that only one of both tells of: ``copy.Net[1]``."""
    told = [{found[0] for name in _boundary_names(trace) if (found := _HOLDER.match(name))} for trace in (a, b)]
    return sorted(told[0] ^ told[1])


def _boundary_names(trace: Trace) -> list[str]:
    return [trace.names[code] for code in np.unique(trace.name[in_phases(trace, ("boundary",))])]


def _without_boundary_of(trace: Trace, holders: Sequence[str]) -> Trace:
    names = [name for name in _boundary_names(trace) if any(name.startswith(f"{one}.") for one in holders)]
    codes = [code for code, name in enumerate(trace.names) if name in names]
    return rows_kept(trace, ~(in_phases(trace, ("boundary",)) & np.isin(trace.name, codes)))
