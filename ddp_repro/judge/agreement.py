"""Whether the ranks of one launch agree in what must be equal on all of them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ddp_repro.judge.alignment import occurrences, paired
from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.comparison import EveryDifference, differences_of
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.forwards import common_forwards
from ddp_repro.judge.majority import outside_majority
from ddp_repro.judge.rank_causes import Disagreement, rank_cause, where_stepped
from ddp_repro.judge.rank_steps import other_steps
from ddp_repro.judge.rows import NO_ROWS, REPLICATED, Index, Labels, Mask, Rows, causal_places, unified
from ddp_repro.judge.unmanaged import of_replicas
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.observations import Trace


def ranks_finding(launch: Launch, *, before: int | None = None) -> Finding | None:
    """Return where the ranks of a launch first disagree, or ``None``; with ``before``, only over steps below it."""
    if len(launch.traces) < 2:
        return None
    ranks = sorted(launch.traces)
    labels, columns = unified([launch.traces[rank] for rank in ranks])
    limit = np.iinfo(np.int64).max if before is None else before
    # Whether parameters are averaged later is not known of a launch that was ended early.
    masks = _masks(labels, columns, limit, by_hand=not launch.was_cut)
    found = first_disagreement(labels, _Replicated(dict(zip(ranks, columns, strict=True)), masks))
    steps = other_steps(launch, found, is_whole=before is None)
    if steps is not None:
        return steps
    return None if found is None else _finding(launch, found)


def every_disagreement(reference: Trace, other: Trace) -> EveryDifference:
    """Return all in which a rank of a launch differs from another one of what must be equal on all."""
    labels, columns = unified([reference, other])
    masks = _masks(labels, columns, np.iinfo(np.int64).max)
    return differences_of(labels, *(rows.take(np.flatnonzero(mask)) for rows, mask in zip(columns, masks, strict=True)))


class _Replicated(Mapping[int, Rows]):
    """Of each rank the rows that ``masks`` (one a rank) choose, taken when they are asked for: all are many."""

    def __init__(self, columns: Mapping[int, Rows], masks: Sequence[Mask]) -> None:
        self._columns = columns
        self._masks = dict(zip(columns, masks, strict=True))

    def __getitem__(self, rank: int) -> Rows:
        return self._columns[rank].take(np.flatnonzero(self._masks[rank]))

    def __iter__(self) -> Iterator[int]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def first_disagreement(labels: Labels, rows: Mapping[int, Rows]) -> Disagreement | None:
    """Return the first step and phase in which not all ranks hold the same rows, by causal order within a step."""
    ranks = list(rows)
    reference = rows[ranks[0]]
    firsts = (_first_apart(labels, reference, rows[rank]) for rank in ranks[1:])
    step, place = min((first for first in firsts if first is not None), default=(None, None))
    if step is None or place is None:
        return None
    seen = {rank: _at(labels, rows[rank], step, place) for rank in ranks}
    return _described(labels, seen, step)


def _first_apart(labels: Labels, reference: Rows, other: Rows) -> tuple[int, int] | None:
    """Return step and causal place of the first row that is not in both, or differs."""
    both = _apart(labels, reference, other)
    return _earliest(both) if len(both[0]) else None


def _masks(labels: Labels, columns: Sequence[Rows], limit: int, *, by_hand: bool = True) -> list[Mask]:
    """Return which rows of each rank must be equal on all, in steps below ``limit``.

    That is what is marked so, the gradients that the optimizer gets for parameters that are, and, ``by_hand``,
    unmanaged parameters that begin so. A forward that not every rank makes (one that evaluates alone) says nothing of
    the others.
    """
    marked = np.array([spec.endswith(REPLICATED) for spec in labels.specs], dtype=np.bool_)
    param, gradient = labels.phase("param"), labels.phase("grad_step")
    names = sorted(
        {name for rows in columns for name in np.unique(rows.name[(rows.phase == param) & marked[rows.spec]])}
    )
    masks = []
    alone = common_forwards(labels, columns)
    for rows, unmanaged, apart in zip(columns, of_replicas(labels, columns), alone, strict=True):
        replicated = marked[rows.spec] | ((rows.phase == gradient) & np.isin(rows.name, names)) | (unmanaged & by_hand)
        masks.append(replicated & (rows.step < limit) & ~apart)
    return masks


def _apart(labels: Labels, a: Rows, b: Rows) -> tuple[Index, Index]:
    """Return step and causal place of each row that is not in both, or differs."""
    if _are_alike(a, b) and np.array_equal(a.digest, b.digest):
        return NO_ROWS, NO_ROWS
    pairs = paired(labels, a, b, with_spec=False)
    changed = (a.digest[pairs.a] != b.digest[pairs.b]).any(axis=1) | (a.spec[pairs.a] != b.spec[pairs.b])
    rows = Rows.joined(a.take(pairs.a[changed]), a.take(pairs.only_a), b.take(pairs.only_b))
    return rows.step.astype(np.int64), causal_places(labels, rows).astype(np.int64)


def _are_alike(a: Rows, b: Rows) -> bool:
    """Return whether both have the same labels at the same places."""
    columns = ((a.step, b.step), (a.phase, b.phase), (a.name, b.name), (a.spec, b.spec))
    return all(np.array_equal(one, other) for one, other in columns)


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


def _finding(launch: Launch, found: Disagreement) -> Finding:
    found = where_stepped(launch, found)
    cause, gaps, details = rank_cause(launch, found)
    place = Place(
        witness="ranks",
        launches=(launch.index,),
        step=found.step,
        ranks=found.odd,
        phase=found.phase,
        name=found.names[0],
        names=found.names,
    )
    return finding(cause, place, gaps, detail="; ".join(filter(None, details)))
