"""What is observed as a forward begins: it says something only of a forward that all have."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ddp_repro.judge.alignment import occurrences
from ddp_repro.judge.rows import Index, Labels, Mask, Rows

_OBSERVED = "forward"


def of_forwards(labels: Labels, rows: Rows) -> Mask:
    """Return which rows were read in a forward: modules' outputs, and buffers that are not read after a step.

    The latter follow the parameters that the optimizer left.
    """
    buffer, param = labels.phase("buffer"), labels.phase("param")
    is_buffer = np.equal(rows.phase, buffer)
    if not len(rows):
        return is_buffer
    preceding = np.maximum.accumulate(np.where(is_buffer, -1, np.arange(len(rows))))
    after_step = (preceding >= 0) & (rows.phase[preceding] == param)
    found: Mask = (is_buffer & ~after_step) | (rows.phase == labels.phase(_OBSERVED))
    return found


def common_forwards(labels: Labels, columns: Sequence[Rows]) -> list[Mask]:
    """Return for each trace which rows belong to forwards that only some of the traces have.

    Forwards come before the loss that is computed from them, after others that nothing is computed from (an
    evaluation). So those of one step that precede the same loss are counted from the last one.
    """
    chosen = [np.flatnonzero(of_forwards(labels, rows)) for rows in columns]
    keys = [_keys(labels, rows, mine) for rows, mine in zip(columns, chosen, strict=True)]
    parts = np.cumsum([0, *map(len, keys)])
    if parts[-1] == 0:
        return [np.zeros(len(rows), np.bool_) for rows in columns]
    kinds = np.unique(np.concatenate(keys), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    split = [kinds[begin:end] for begin, end in pairwise(parts)]
    least = _least(split, int(kinds.max()) + 1)
    return [_beyond(len(rows), mine, kind, least) for rows, mine, kind in zip(columns, chosen, split, strict=True)]


def _keys(labels: Labels, rows: Rows, mine: Index) -> Index:
    """Return step, phase, name and number of losses before it in its step, for each of the rows: ``int64[n, 4]``."""
    losses = np.cumsum(rows.phase == labels.phase("loss"))
    steps, begins = np.unique(rows.step, return_index=True)
    at_begin = np.concatenate([[0], losses])[begins]
    before = losses[mine] - at_begin[np.searchsorted(steps, rows.step[mine])]
    return np.column_stack([rows.step[mine], rows.phase[mine], rows.name[mine], before]).astype(np.int64)


def _least(kinds: Sequence[Index], count: int) -> Index:
    """Return how many of each kind every trace has."""
    least: Index = np.min([np.bincount(kind, minlength=count) for kind in kinds], axis=0)
    return least


def _beyond(count: int, mine: Index, kind: Index, least: Index) -> Mask:
    from_last = occurrences(kind[::-1])[::-1]
    marked = np.zeros(count, np.bool_)
    marked[mine[from_last >= least[kind]]] = True
    return marked
