"""Whether the ranks of one launch agree in what must be equal on all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ddp_repro.judge.alignment import occurrences, paired
from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.forwards import common_forwards
from ddp_repro.judge.rank_causes import STEP, STEP_CONTROL, Disagreement, rank_cause
from ddp_repro.judge.rows import REPLICATED, Index, Labels, Rows, causal_places, unified
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_COUNTED = ("param", "optimizer", "grad_step")


def ranks_finding(launch: Launch, *, before: int | None = None) -> Finding | None:
    """Return where the ranks of a launch first disagree, or ``None``; with ``before``, only over steps below it."""
    if len(launch.traces) < 2:
        return None
    ranks = sorted(launch.traces)
    labels, columns = unified([launch.traces[rank] for rank in ranks])
    limit = np.iinfo(np.int64).max if before is None else before
    rows = dict(zip(ranks, _replicated(labels, columns, limit), strict=True))
    found = first_disagreement(labels, rows)
    counters = _counters(launch.traces) if before is None else None
    if counters is not None and (found is None or counters.step < found.step):
        found = counters
    return None if found is None else _finding(launch, found)


def first_disagreement(labels: Labels, rows: Mapping[int, Rows]) -> Disagreement | None:
    """Return the first step and phase in which not all ranks hold the same rows, by causal order within a step."""
    ranks = list(rows)
    reference = rows[ranks[0]]
    apart = {rank: _apart(labels, reference, rows[rank]) for rank in ranks[1:]}
    apart = {rank: both for rank, both in apart.items() if len(both[0])}
    if not apart:
        return None
    step, place = min(_earliest(both) for both in apart.values())
    seen = {rank: _at(labels, rows[rank], step, place) for rank in ranks}
    return _described(labels, seen, step)


def _replicated(labels: Labels, columns: Sequence[Rows], limit: int) -> list[Rows]:
    """Return of each rank what must be equal on all, in steps below ``limit``.

    That is what is marked so, and the gradients that the optimizer gets for parameters that are. A forward that not
    every rank makes (one that evaluates alone) says nothing of the others.
    """
    marked = np.array([spec.endswith(REPLICATED) for spec in labels.specs], dtype=np.bool_)
    param, gradient = labels.phase("param"), labels.phase("grad_step")
    names = np.unique(np.concatenate([rows.name[(rows.phase == param) & marked[rows.spec]] for rows in columns]))
    return [
        rows.take(
            np.flatnonzero(
                (marked[rows.spec] | ((rows.phase == gradient) & np.isin(rows.name, names)))
                & (rows.step < limit)
                & ~alone
            )
        )
        for rows, alone in zip(columns, common_forwards(labels, columns), strict=True)
    ]


def _apart(labels: Labels, a: Rows, b: Rows) -> tuple[Index, Index]:
    """Return step and causal place of each row that is not in both, or differs."""
    pairs = paired(labels, a, b, with_spec=False)
    changed = (a.digest[pairs.a] != b.digest[pairs.b]).any(axis=1) | (a.spec[pairs.a] != b.spec[pairs.b])
    rows = Rows.joined(a.take(pairs.a[changed]), a.take(pairs.only_a), b.take(pairs.only_b))
    return rows.step.astype(np.int64), causal_places(labels, rows).astype(np.int64)


def _earliest(both: tuple[Index, Index]) -> tuple[int, int]:
    steps, places = both
    first = np.lexsort((places, steps))[0]
    return int(steps[first]), int(places[first])


def _at(labels: Labels, rows: Rows, step: int, place: int) -> Rows:
    here = rows.take(np.flatnonzero(rows.step == step))
    return here.take(np.flatnonzero(causal_places(labels, here) == place))


_Held = dict[tuple[str, int], tuple[str, bytes]]


def _described(labels: Labels, seen: Mapping[int, Rows], step: int) -> Disagreement:
    held = {rank: _held(labels, rows) for rank, rows in seen.items()}
    keys = {key: None for found in held.values() for key in found}
    differing = [key for key in keys if len({found.get(key) for found in held.values()}) > 1]
    odd: set[int] = set()
    has_majority = True
    for key in differing:
        apart, is_minority = outside_majority({rank: found.get(key) for rank, found in held.items()})
        odd |= set(apart)
        has_majority = has_majority and is_minority
    some = next(rows for rows in seen.values() if len(rows))
    return Disagreement(
        step=step,
        phase=labels.phases[some.phase[0]],
        names=tuple(dict.fromkeys(name for name, _ in differing)),
        odd=tuple(sorted(odd)),
        has_majority=has_majority,
        absent=tuple(rank for rank, found in held.items() if any(key not in found for key in differing)),
        compared=len(keys),
    )


def _held(labels: Labels, rows: Rows) -> _Held:
    numbers = occurrences(rows.name.astype(np.int64))
    return {
        (labels.names[rows.name[row]], int(numbers[row])): (labels.specs[rows.spec[row]], rows.digest[row].tobytes())
        for row in range(len(rows))
    }


def outside_majority(values: Mapping[int, object]) -> tuple[tuple[int, ...], bool]:
    """Return the ranks whose value is not that of more than half, and True; all ranks and False where none is."""
    usual, count = Counter(values.values()).most_common(1)[0]
    if 2 * count <= len(values):
        return tuple(values), False
    return tuple(rank for rank, value in values.items() if value != usual), True


def _counters(traces: Mapping[int, Trace]) -> Disagreement | None:
    """Return the first optimizer step that not all ranks made."""
    last = {rank: _last_step(trace) for rank, trace in sorted(traces.items())}
    if len(set(last.values())) == 1:
        return None
    odd, has_majority = outside_majority(last)
    first = min(last.values())
    return Disagreement(
        step=first + 1,
        phase=STEP_CONTROL,
        names=(STEP,),
        odd=odd,
        has_majority=has_majority,
        absent=tuple(rank for rank, step in last.items() if step == first),
        compared=1,
    )


def _last_step(trace: Trace) -> int:
    codes = [code for code, phase in enumerate(trace.phases) if phase in _COUNTED]
    return int(trace.step[np.isin(trace.phase, codes)].max(initial=-1))


def _finding(launch: Launch, found: Disagreement) -> Finding:
    cause, gaps, details = rank_cause(launch, found)
    steps = cause == "control-flow" and "phase" not in gaps
    names = (STEP,) if steps else found.names
    place = Place(
        witness="ranks",
        launches=(launch.index,),
        step=found.step,
        ranks=found.odd,
        phase=STEP_CONTROL if steps else found.phase,
        name=names[0],
        names=names,
    )
    return finding(cause, place, gaps, detail="; ".join(filter(None, details)))
