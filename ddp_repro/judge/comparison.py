"""Two traces of one rank, row by row: cheap equality first, and an explanation only of what differs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.alignment import paired
from ddp_repro.judge.rows import Codes, Index, Labels, Mask, Rows, causal_places, unified
from ddp_repro.trace.reader import Trace

_NO_ROW = -1


class Kind(StrEnum):
    """In what way two observations differ; ``missing`` and ``extra`` are said of the second trace."""

    VALUE = "value"
    SPEC = "spec"
    ORDER = "order"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first difference between two traces of a rank.

    ``rows`` are its rows in both (``None`` where one has no such row), ``place`` its place in causal order within the
    step. ``names`` holds, by phase in causal order, all names that differ in this step; ``differing`` counts the rows
    that differ in all, of ``compared`` in the longer trace.
    """

    kind: Kind
    step: int
    phase: str
    name: str
    spec: str
    place: int
    rows: tuple[int | None, int | None]
    names: dict[str, tuple[str, ...]]
    differing: int
    compared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What comparing gave; ``reordered`` counts rows that stand elsewhere and are equal all the same."""

    divergence: Divergence | None
    reordered: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EveryDifference:
    """All n observations that differ between two traces of a rank, in no order.

    ``seen`` are their rows as the first trace has them (the second where only it has them), ``place`` their places in
    causal order within the step, ``a`` and ``b`` their row numbers in both (-1: none). ``rows`` are all rows compared.
    """

    labels: Labels
    seen: Rows
    place: Codes
    a: Index
    b: Index
    rows: tuple[Rows, Rows]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Rows that differ in one way; -1 stands for no row."""

    kind: Kind
    a: Index
    b: Index


def compare_traces(a: Trace, b: Trace) -> Divergence | None:
    """Return the first difference between two traces of a rank, or ``None`` where every observation is equal."""
    return examine_traces(a, b).divergence


def examine_traces(a: Trace, b: Trace, *, before: int | None = None) -> Comparison:
    """Compare two traces of a rank; with ``before``, only the rows of steps below it."""
    labels, (rows_a, rows_b) = unified([a, b])
    if before is not None:
        rows_a, rows_b = (rows.take(slice(0, _rows_before(rows, before))) for rows in (rows_a, rows_b))
    parts, reordered = _differences(labels, rows_a, rows_b)
    return Comparison(divergence=_first(labels, rows_a, rows_b, parts), reordered=reordered)


def every_difference(a: Trace, b: Trace, *, before: int | None = None) -> EveryDifference:
    """Return all that differs between two traces of a rank; with ``before``, only over the rows of steps below it."""
    labels, (rows_a, rows_b) = unified([a, b])
    if before is not None:
        rows_a, rows_b = (rows.take(slice(0, _rows_before(rows, before))) for rows in (rows_a, rows_b))
    return differences_of(labels, rows_a, rows_b)


def differences_of(labels: Labels, rows_a: Rows, rows_b: Rows) -> EveryDifference:
    """Return all that differs between two sets of rows with one set of labels."""
    parts, _ = _differences(labels, rows_a, rows_b)
    at_a, at_b = (np.concatenate([getattr(part, side) for part in parts]) for side in ("a", "b"))
    seen, place = _placed(labels, (rows_a, rows_b), at_a, at_b)
    return EveryDifference(labels=labels, seen=seen, place=place, a=at_a, b=at_b, rows=(rows_a, rows_b))


def _rows_before(rows: Rows, step: int) -> int:
    later = rows.step >= step
    return int(np.argmax(later)) if later.any() else len(rows)


def _differences(labels: Labels, a: Rows, b: Rows) -> tuple[list[_Part], int]:
    """Return what differs, and how many rows only moved."""
    uneven = _uneven(a, b)
    if len(a) == len(b) and not uneven.any():
        is_equal = a.digest is b.digest or np.array_equal(a.digest, b.digest)
        rows = np.empty(0, np.int64) if is_equal else np.flatnonzero(_unequal(a.digest, b.digest))
        return [_Part(kind=Kind.VALUE, a=rows, b=rows)], 0
    apart_a, apart_b = _apart(a, b, uneven)
    alike = np.flatnonzero(~apart_a)
    parts, reordered = _aligned(labels, a, b, (np.flatnonzero(apart_a), np.flatnonzero(apart_b)))
    return [_changed(a, b, alike, alike), *parts], reordered


def _uneven(a: Rows, b: Rows) -> Mask:
    """Return for each place that both have whether step, phase, name or spec differ there."""
    common = min(len(a), len(b))
    uneven = np.zeros(common, np.bool_)
    for left, right in ((a.step, b.step), (a.phase, b.phase), (a.name, b.name), (a.spec, b.spec)):
        if left is not right and not np.array_equal(left[:common], right[:common]):
            uneven |= left[:common] != right[:common]
    return uneven


def _unequal(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> Mask:
    """Return for each of n digests whether it differs; column by column, which is several times faster."""
    unequal: Mask = (a[:, 0] != b[:, 0]) | (a[:, 1] != b[:, 1])
    return unequal


def _changed(a: Rows, b: Rows, rows_a: Index, rows_b: Index) -> _Part:
    changed = _unequal(a.digest[rows_a], b.digest[rows_b])
    return _Part(kind=Kind.VALUE, a=rows_a[changed], b=rows_b[changed])


def _apart(a: Rows, b: Rows, uneven: Mask) -> tuple[Mask, Mask]:
    """Return masks over both of the rows that cannot be compared place by place; the others are the same places.

    Where both have the same steps at the same places, those are whole steps; else all from the first uneven place.
    """
    if np.array_equal(a.step, b.step):
        apart = np.isin(a.step, np.unique(a.step[uneven]))
        return apart, apart
    alike = int(np.argmax(uneven)) if uneven.any() else len(uneven)
    return np.arange(len(a)) >= alike, np.arange(len(b)) >= alike


def _aligned(labels: Labels, a: Rows, b: Rows, apart: tuple[Index, Index]) -> tuple[list[_Part], int]:
    """Compare the rows ``apart`` by their labels and occurrence; data also by its order, which is content."""
    rows_a, rows_b = apart
    pairs = paired(labels, a.take(rows_a), b.take(rows_b))
    changed = _changed(a, b, rows_a[pairs.a], rows_b[pairs.b])
    unmatched = _unmatched(labels, a, b, (rows_a[pairs.only_a], rows_b[pairs.only_b]))
    order = _data_order(labels, a, rows_a[pairs.a], rows_b[pairs.b])
    return [changed, *unmatched, order], _moved(pairs.b)


def _unmatched(labels: Labels, a: Rows, b: Rows, only: tuple[Index, Index]) -> list[_Part]:
    """Return rows without a partner: of another spec where the other trace has the name, else missing or extra."""
    only_a, only_b = only
    pairs = paired(labels, a.take(only_a), b.take(only_b), with_spec=False)
    missing, extra = only_a[pairs.only_a], only_b[pairs.only_b]
    return [
        _Part(kind=Kind.SPEC, a=only_a[pairs.a], b=only_b[pairs.b]),
        _Part(kind=Kind.MISSING, a=missing, b=np.full(len(missing), _NO_ROW)),
        _Part(kind=Kind.EXTRA, a=np.full(len(extra), _NO_ROW), b=extra),
    ]


def _data_order(labels: Labels, a: Rows, rows_a: Index, rows_b: Index) -> _Part:
    """Return the first place at which data rows that both have follow each other in another order."""
    data = a.phase[rows_a] == labels.phase("data")
    in_a, in_b = rows_a[data], rows_b[data]
    first = np.flatnonzero(in_b != np.sort(in_b))[:1]
    return _Part(kind=Kind.ORDER, a=in_a[first], b=np.sort(in_b)[first])


def _moved(partners: Index) -> int:
    """Return how many partners stand before one that they should follow."""
    return int(np.count_nonzero(partners < np.maximum.accumulate(partners))) if len(partners) else 0


def _first(labels: Labels, a: Rows, b: Rows, parts: Sequence[_Part]) -> Divergence | None:
    parts = [part for part in parts if len(part.a)]
    if not parts:
        return None
    kinds = np.repeat(np.arange(len(parts)), [len(part.a) for part in parts])
    rows_a, rows_b = (np.concatenate([getattr(part, side) for part in parts]) for side in ("a", "b"))
    step = np.concatenate([a.step, b.step])[np.where(rows_a == _NO_ROW, len(a) + rows_b, rows_a)]
    here = np.flatnonzero(step == step.min())
    seen, place = _placed(labels, (a, b), rows_a[here], rows_b[here])
    row = _earlier(rows_a[here], rows_b[here])
    first = np.lexsort((seen.name, row, place))[0]
    pick = here[first]
    return Divergence(
        kind=parts[kinds[pick]].kind,
        step=int(seen.step[first]),
        phase=labels.phases[seen.phase[first]],
        name=labels.names[seen.name[first]],
        spec=labels.specs[seen.spec[first]],
        place=int(place[first]),
        rows=(_row(rows_a[pick]), _row(rows_b[pick])),
        names=_names(labels, seen, place, row),
        differing=len(rows_a),
        compared=max(len(a), len(b)),
    )


def _placed(labels: Labels, both: tuple[Rows, Rows], rows_a: Index, rows_b: Index) -> tuple[Rows, Codes]:
    """Return the rows that differ and their places in causal order."""
    a, b = both
    seen = _seen(a, b, rows_a, rows_b)
    # Another spec can move a buffer from one place to another: the earlier one counts.
    other = _seen(b, a, rows_b, rows_a)
    return seen, np.minimum(causal_places(labels, seen), causal_places(labels, other))


def _seen(a: Rows, b: Rows, rows_a: Index, rows_b: Index) -> Rows:
    """Return the rows of ``a``, and those of ``b`` where ``a`` has none."""
    in_a = rows_a != _NO_ROW
    both = Rows.joined(a.take(rows_a[in_a]), b.take(rows_b[~in_a]))
    return both.take(np.argsort(np.concatenate([np.flatnonzero(in_a), np.flatnonzero(~in_a)])))


def _earlier(rows_a: Index, rows_b: Index) -> Index:
    """Return the smaller of both row numbers, or the one there is."""
    return np.where(np.minimum(rows_a, rows_b) == _NO_ROW, np.maximum(rows_a, rows_b), np.minimum(rows_a, rows_b))


def _names(labels: Labels, seen: Rows, place: Codes, row: Index) -> dict[str, tuple[str, ...]]:
    names: dict[str, dict[str, None]] = {}
    for at in np.lexsort((row, place)):
        names.setdefault(labels.phases[seen.phase[at]], {})[labels.names[seen.name[at]]] = None
    return {phase: tuple(found) for phase, found in names.items()}


def _row(row: np.int64) -> int | None:
    return None if row == _NO_ROW else int(row)
