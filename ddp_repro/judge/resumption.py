"""A launch that goes on from a checkpoint, and the one that was never stopped, as they are compared.

Rows stand for each other from the step on from which the launch goes on. What only says that a process began anew is
left out: the number of the pass, batches that were fetched to be skipped, the states of workers that are new (what
they draw shows in the batches), the layout of DDP's buckets (what it does shows in the gradients).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.ignored import rows_kept
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.rows import Index, Mask
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace
from ddp_repro.trace.schema import UNDRAWN

_OF_THE_PROCESS: Final = ("pass", "passed_over", "length", "num_workers", "end", "guard", "guard_fixed")
_OF_WORKERS: Final = re.compile(r"worker\d+\..*", re.DOTALL)
_LAYOUT: Final = re.compile(r"(?:.*\.)?bucket_layout", re.DOTALL)
_HOLDER: Final = re.compile(r"(?:copy|scheduler)\.[^.]*\[\d+\]|scaler(?=\.)")
_KIND: Final = re.compile(r"\[\d+\]$")
_COLUMNS: Final = ("step", "seq", "phase", "name", "spec", "digest", "value", "valid")


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


def sides(straight: Launch, resumed: Launch, expected: int | None) -> Sides:
    """Return both launches as they are compared; ``expected`` is where the second one should go on, where known."""
    begins = begins_at(straight, resumed, expected)
    ranks = sorted(straight.traces.keys() & resumed.traces.keys())
    shifted = {rank: _shifted(resumed.traces[rank], begins) for rank in ranks}
    other_layout = tuple(rank for rank in ranks if _other_layout(straight.traces[rank], shifted[rank], begins))
    traces_a, traces_b = dict(straight.traces), dict(resumed.traces)
    idle: dict[int, tuple[str, ...]] = {}
    one_sided: dict[str, None] = {}
    for rank in ranks:
        one, other = _compared(straight.traces[rank], shifted[rank], begins)
        alone = _one_sided(one, other)
        one_sided.update(dict.fromkeys(alone))
        one, other = (_without_boundary_of(trace, alone) for trace in (one, other))
        idle[rank] = tuple(_idle(one, other))
        traces_a[rank], traces_b[rank] = (_without_generators(trace, idle[rank]) for trace in (one, other))
    return Sides(
        straight=replace(straight, traces=traces_a),
        resumed=replace(resumed, traces=traces_b),
        whole=straight,
        begins=begins,
        other_layout=other_layout,
        idle={rank: names for rank, names in idle.items() if names},
        one_sided=tuple(one_sided),
    )


def begins_at(straight: Launch, resumed: Launch, expected: int | None) -> int:
    """Return the step of the uninterrupted launch that a resumed one starts from.

    A trace that counts on says so itself. One that counts from 0 starts where its parameters are those that the other
    launch had before a step; where they are those of none or of several, ``expected`` decides.
    """
    rank = min(straight.traces.keys() & resumed.traces.keys(), default=None)
    if rank is None:
        return expected or 0
    trace, other = resumed.traces[rank], straight.traces[rank]
    counted = trace.step[trace.step >= 0]
    if len(counted) and counted[0] > 0:
        return int(counted[0])
    mine = _held(trace, int(counted[0]) if len(counted) else 0)
    found = [step for step in np.unique(other.step[other.step >= 0]) if mine and _held(other, int(step)) == mine]
    if len(found) == 1 or (found and expected is None):
        return int(found[-1])
    return expected or 0


def _held(trace: Trace, step: int) -> dict[str, bytes]:
    """Return the digests of the parameters before a step."""
    rows = np.flatnonzero((trace.step == step) & _in_phases(trace, ("boundary",)))
    told = ((trace.names[trace.name[row]], trace.digest[row].tobytes()) for row in rows)
    return {name: digest for name, digest in told if name.startswith("param.")}


def _shifted(trace: Trace, begins: int) -> Trace:
    counted = trace.step[trace.step >= 0]
    if len(counted) == 0 or counted[0] > 0:
        return trace
    return replace(trace, step=np.where(trace.step >= 0, trace.step + np.int32(begins), trace.step))


def _in_phases(trace: Trace, phases: tuple[str, ...]) -> Mask:
    return np.isin(trace.phase, [code for code, phase in enumerate(trace.phases) if phase in phases])


def _named(trace: Trace, expression: re.Pattern[str]) -> Mask:
    return np.isin(trace.name, [code for code, name in enumerate(trace.names) if expression.fullmatch(name)])


def _other_layout(a: Trace, b: Trace, step: int) -> bool:
    told = []
    for trace in (a, b):
        rows = np.flatnonzero(_named(trace, _LAYOUT) & (trace.step == step))
        told.append([(trace.names[trace.name[row]], trace.digest[row].tobytes()) for row in rows])
    return told[0] != told[1]


def _compared(a: Trace, b: Trace, begins: int) -> tuple[Trace, Trace]:
    a, b = _carried_forward(a, b, begins), rows_kept(b, (b.step >= begins) & ~_in_phases(b, ("init",)))
    a, b = (_alike_named(rows_kept(trace, ~_of_the_process(trace))) for trace in (a, b))
    a, b = _without_later_boundaries(a, begins), _without_later_boundaries(b, begins)
    a, b = _without_skipped(a, b, begins)
    return _without_undrawn(a, b)


def _of_the_process(trace: Trace) -> Mask:
    """Return the rows that say that a process, a pass or its workers are new, and those of bucket layouts."""
    codes = []
    for code, name in enumerate(trace.names):
        parts = split_name(name)
        if parts is not None and (parts[1] in _OF_THE_PROCESS or _OF_WORKERS.fullmatch(parts[1])):
            codes.append(code)
    return np.isin(trace.name, codes) | _named(trace, _LAYOUT)


def _carried_forward(a: Trace, b: Trace, begins: int) -> Trace:
    """Return the uninterrupted trace from a step on, with what was said of the pass under way when it began.

    A resumed launch begins that pass again and says it again: epoch, order, the sampler's rank.
    """
    kept = (a.step >= begins) & ~_in_phases(a, ("init",))
    carried = _last_before(a, begins) if _begins_pass_alone(a, b, begins) else np.empty(0, np.int64)
    rows = np.concatenate([carried, np.flatnonzero(kept)])
    step = np.concatenate([np.full(len(carried), begins, np.int32), a.step[kept]])
    return replace(a, **{column: getattr(a, column)[rows] for column in _COLUMNS if column != "step"}, step=step)


def _begins_pass_alone(a: Trace, b: Trace, begins: int) -> bool:
    """Return whether the resumed launch says at its first step what a pass begins with, and the other does not."""
    return bool(_facts_at(b, begins)) and not _facts_at(a, begins)


def _facts_at(trace: Trace, step: int) -> list[int]:
    rows = np.flatnonzero((trace.step == step) & _in_phases(trace, ("data",)))
    return [int(row) for row in rows if _is_fact(trace.names[trace.name[row]])]


def _is_fact(name: str) -> bool:
    parts = split_name(name)
    return parts is not None and parts[1] != "index" and not parts[1].startswith("batch")


def _last_before(trace: Trace, step: int) -> Index:
    """Return the last row before ``step`` of each fact of the loader that delivers the first batch from ``step`` on."""
    loader = next(_delivering(trace, step), None)
    found: dict[int, int] = {}
    for row in np.flatnonzero((trace.step < step) & _in_phases(trace, ("data",))):
        name = trace.names[trace.name[row]]
        parts = split_name(name)
        if parts is not None and parts[0] == loader and _is_fact(name):
            found[int(trace.name[row])] = int(row)
    return np.array(sorted(found.values()), np.int64)


def _delivering(trace: Trace, step: int) -> Iterator[str]:
    for row in np.flatnonzero((trace.step >= step) & _in_phases(trace, ("data",))):
        parts = split_name(trace.names[trace.name[row]])
        if parts is not None and not _is_fact(trace.names[trace.name[row]]):
            yield parts[0]


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


def _without_later_boundaries(trace: Trace, begins: int) -> Trace:
    return rows_kept(trace, ~(_in_phases(trace, ("boundary",)) & (trace.step > begins)))


def _without_skipped(a: Trace, b: Trace, begins: int) -> tuple[Trace, Trace]:
    """Leave out of the first resumed step what was fetched only to be skipped: of each name the last rows count."""
    of_loaders = ("data", "rng")
    counts = {name: len(rows) for name, rows in _by_name(a, begins, of_loaders).items()}
    left = np.zeros(len(b), np.bool_)
    for name, rows in _by_name(b, begins, of_loaders).items():
        kept = counts.get(name, 0)
        if kept:
            left[rows[: max(0, len(rows) - kept)]] = True
    return a, rows_kept(b, ~left)


def _by_name(trace: Trace, step: int, phases: tuple[str, ...]) -> dict[str, Index]:
    rows = np.flatnonzero((trace.step == step) & _in_phases(trace, phases))
    return {trace.names[code]: rows[trace.name[rows] == code] for code in np.unique(trace.name[rows])}


def _without_undrawn(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Leave out the states of generators that were never drawn from where nothing was stopped: loading moves them."""
    undrawn: npt.NDArray[np.uint64] = np.frombuffer(UNDRAWN, np.uint64)
    names = [name for name, digests in _states(a).items() if (digests == undrawn).all()]
    return _without_generators(a, names), _without_generators(b, names)


def _idle(a: Trace, b: Trace) -> Iterator[str]:
    """Yield the generators whose states differ and do not move, as far as more than one look can tell."""
    others = _states(b)
    for name, digests in _states(a).items():
        theirs = others.get(name)
        if theirs is None or min(len(digests), len(theirs)) < 2 or np.array_equal(digests[:1], theirs[:1]):
            continue
        if all((one == one[:1]).all() for one in (digests, theirs)):
            yield name


def _one_sided(a: Trace, b: Trace) -> list[str]:
    """Return the copies, schedulers and scalers that only one of both tells of: ``copy.Net[1]``."""
    told = [
        {_HOLDER.match(trace.names[code])[0] for code in _boundary_codes(trace) if _HOLDER.match(trace.names[code])}  # type: ignore[index]
        for trace in (a, b)
    ]
    return sorted(told[0] ^ told[1])


def _without_boundary_of(trace: Trace, holders: Sequence[str]) -> Trace:
    codes = [code for code in _boundary_codes(trace) if any(trace.names[code].startswith(f"{one}.") for one in holders)]
    return rows_kept(trace, ~(_in_phases(trace, ("boundary",)) & np.isin(trace.name, codes)))


def _boundary_codes(trace: Trace) -> list[int]:
    return [int(code) for code in np.unique(trace.name[_in_phases(trace, ("boundary",))])]


def _states(trace: Trace) -> dict[str, npt.NDArray[np.uint64]]:
    """Return the digests (uint64[n, 2]) of each generator's states, in order."""
    of_rng = _in_phases(trace, ("rng",))
    codes = np.unique(trace.name[of_rng])
    return {trace.names[code]: trace.digest[of_rng & (trace.name == code)] for code in codes}


def _without_generators(trace: Trace, names: Sequence[str]) -> Trace:
    codes = [code for code, name in enumerate(trace.names) if name in names]
    return rows_kept(trace, ~(_in_phases(trace, ("rng",)) & np.isin(trace.name, codes)))
