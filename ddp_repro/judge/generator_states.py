"""The states of generators in a launch that goes on and in the one that was never stopped: those that count."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.ignored import rows_kept
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.rows import Index, Mask, in_phases
from ddp_repro.trace.reader import Trace
from ddp_repro.trace.schema import BOUNDARY_STATE, UNDRAWN


def boundary_states(trace: Trace) -> Mask:
    """Return which rows are states of generators at a boundary."""
    return np.isin(trace.spec, [code for code, spec in enumerate(trace.specs) if spec == BOUNDARY_STATE])


def without_harmless_states(a: Trace, b: Trace, begins: int) -> tuple[Trace, Trace]:
    """Leave out the states with the first resumed batch where they did nothing.

    That is where the samples are the same in content, and the states with which computing begins are equal: they were
    put back between the two.
    """
    told = [_told_at(trace, begins) for trace in (a, b)]
    if told[0] != told[1] or not told[0][0]:
        return a, b
    names = {name for name, _ in told[0][0]}
    return _without_delivered(a, begins, names), _without_delivered(b, begins, names)


def _told_at(trace: Trace, step: int) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """Return the generators' states at the boundary of a step, and what was said of its data."""
    now = trace.step == step
    masks = (now & boundary_states(trace), now & in_phases(trace, ("data",)))
    states, data = (
        [(trace.names[trace.name[row]], trace.digest[row].tobytes()) for row in np.flatnonzero(mask)] for mask in masks
    )
    return states, data


def _without_delivered(trace: Trace, step: int, names: set[str]) -> Trace:
    codes = [code for code, name in enumerate(trace.names) if name in names]
    delivered = (trace.step == step) & in_phases(trace, ("rng",)) & ~boundary_states(trace)
    return rows_kept(trace, ~(delivered & np.isin(trace.name, codes)))


def without_undrawn(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Leave out the states of generators that were never drawn from where nothing was stopped: loading moves them."""
    undrawn: npt.NDArray[np.uint64] = np.frombuffer(UNDRAWN, np.uint64)
    names = [name for name, rows in _states(a).items() if (a.digest[rows] == undrawn).all()]
    return without_generators(a, names), without_generators(b, names)


def passes_begun(trace: Trace) -> Index:
    """Return the sequence numbers of the rows with which a loader without workers begins a pass."""
    codes = [code for code, name in enumerate(trace.names) if (split_name(name) or ("", ""))[1] == "num_workers"]
    begun: Index = trace.seq[np.isin(trace.name, codes) & np.equal(trace.value, 0)]
    return begun


def idle_names(a: Trace, b: Trace, begun: list[Index]) -> Iterator[str]:
    """Yield the generators whose states differ and do not move, as far as more than one look can tell.

    ``begun`` holds for each trace the sequence numbers of rows at which they may move.
    """
    others = _states(b)
    for name, mine in _states(a).items():
        theirs = others.get(name)
        if theirs is None or min(len(mine), len(theirs)) < 2:
            continue
        is_still = not any(map(len, begun))
        looked_at = slice(1) if is_still else slice(None)
        if np.array_equal(a.digest[mine[looked_at]], b.digest[theirs[looked_at]]):
            continue
        if _moves_only_at(a, mine, begun[0]) and _moves_only_at(b, theirs, begun[1]):
            yield name


def _moves_only_at(trace: Trace, rows: Index, begun: Index) -> bool:
    moved = np.flatnonzero((trace.digest[rows[1:]] != trace.digest[rows[:-1]]).any(axis=1))
    seq, begun = trace.seq[rows], np.sort(begun)
    return bool((np.searchsorted(begun, seq[moved + 1]) > np.searchsorted(begun, seq[moved])).all())


def _states(trace: Trace) -> dict[str, Index]:
    """Return the rows of each generator's states, in order."""
    of_rng = in_phases(trace, ("rng",))
    return {trace.names[code]: np.flatnonzero(of_rng & (trace.name == code)) for code in np.unique(trace.name[of_rng])}


def without_generators(trace: Trace, names: Sequence[str]) -> Trace:
    """Return the trace without the states of these generators."""
    codes = [code for code, name in enumerate(trace.names) if name in names]
    return rows_kept(trace, ~(in_phases(trace, ("rng",)) & np.isin(trace.name, codes)))
