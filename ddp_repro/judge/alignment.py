"""Which row of one trace stands for which row of another."""

from dataclasses import dataclass

import numpy as np

from ddp_repro.judge.rows import Index, Labels, Rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairing:
    """Rows ``a[i]`` and ``b[i]`` belong together; ``only_a`` and ``only_b`` have no partner. All ascending in a."""

    a: Index
    b: Index
    only_a: Index
    only_b: Index


def paired(labels: Labels, a: Rows, b: Rows, *, with_spec: bool = True) -> Pairing:
    """Pair rows of the same step, phase, name (and spec) by their occurrence number within it."""
    kind_a, kind_b = _kinds(labels, a, b, with_spec=with_spec)
    if np.array_equal(kind_a, kind_b):
        everything, none = np.arange(len(a), dtype=np.int64), np.empty(0, np.int64)
        return Pairing(a=everything, b=everything, only_a=none, only_b=none)
    occurrence_a, occurrence_b = occurrences(kind_a), occurrences(kind_b)
    most = int(max(occurrence_a.max(initial=0), occurrence_b.max(initial=0))) + 1
    if (int(max(kind_a.max(initial=0), kind_b.max(initial=0))) + 1) * most >= 2**62:
        kind_a, kind_b = _dense(kind_a, kind_b)
    unique_a, unique_b = kind_a * most + occurrence_a, kind_b * most + occurrence_b
    _, rows_a, rows_b = np.intersect1d(unique_a, unique_b, assume_unique=True, return_indices=True)
    order = np.argsort(rows_a)
    return Pairing(
        a=rows_a[order],
        b=rows_b[order],
        only_a=_others(len(a), rows_a),
        only_b=_others(len(b), rows_b),
    )


def occurrences(kind: Index) -> Index:
    """Return for each element how many equal ones stand before it: ``[7, 3, 7] -> [0, 0, 1]``."""
    order = np.argsort(kind, kind="stable")
    in_order = kind[order]
    begins = np.empty(len(kind), np.bool_)
    begins[:1] = True
    begins[1:] = in_order[1:] != in_order[:-1]
    places = np.arange(len(kind), dtype=np.int64)
    counted = np.empty(len(kind), np.int64)
    counted[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return counted


def _kinds(labels: Labels, a: Rows, b: Rows, *, with_spec: bool) -> tuple[Index, Index]:
    """Return one integer a row, equal exactly where step, phase and name (and spec) are."""
    codes = np.concatenate([_label_code(labels, rows, with_spec=with_spec) for rows in (a, b)])
    steps = np.concatenate([a.step, b.step]).astype(np.int64)
    if len(steps) == 0:
        return steps, steps
    steps -= steps.min()
    if (int(steps.max()) + 1) * (int(codes.max()) + 1) >= 2**62:
        codes, steps = _numbered(codes), _numbered(steps)
    kinds = steps * (int(codes.max()) + 1) + codes
    return kinds[: len(a)], kinds[len(a) :]


def _dense(a: Index, b: Index) -> tuple[Index, Index]:
    numbers = _numbered(np.concatenate([a, b]))
    return numbers[: len(a)], numbers[len(a) :]


def _numbered(column: Index) -> Index:
    """Return small numbers for large ones: below the number of rows, so that the product of two such columns fits."""
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def _label_code(labels: Labels, rows: Rows, *, with_spec: bool) -> Index:
    code = rows.phase.astype(np.int64) * len(labels.names) + rows.name
    return code * len(labels.specs) + rows.spec if with_spec else code


def _others(count: int, rows: Index) -> Index:
    left = np.ones(count, np.bool_)
    left[rows] = False
    return np.flatnonzero(left)
