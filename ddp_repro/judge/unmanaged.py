"""Parameters that nobody says to be equal on all ranks, and that training by hand means to keep so."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ddp_repro.judge.rows import Index, Labels, Mask, Rows

UNMANAGED: Final = " unmanaged"
"""Suffix of the spec of what neither DDP nor a placement holds equal on all ranks."""


def of_replicas(labels: Labels, columns: Sequence[Rows]) -> list[Mask]:
    """Return for each rank which rows of unmanaged parameters must be equal on all ranks.

    Those are the rows of parameters with which all ranks begin alike, which they come to hold differently, and never
    alike again. Ones that are equal later are kept so in some other way: averaged now and then, say.
    """
    marked = np.array([spec.endswith(UNMANAGED) for spec in labels.specs], dtype=np.bool_)
    chosen = [marked[rows.spec] for rows in columns]
    if not all(mask.any() for mask in chosen):
        return [np.zeros(len(rows), np.bool_) for rows in columns]
    kept = [rows.take(np.flatnonzero(mask)) for rows, mask in zip(columns, chosen, strict=True)]
    names = sorted(_begun_alike(labels, kept) & _parted(labels, kept))
    return [mask & np.isin(rows.name, names) for rows, mask in zip(columns, chosen, strict=True)]


def _begun_alike(labels: Labels, columns: Sequence[Rows]) -> set[int]:
    """Return the names that all ranks begin with, with equal values."""
    held = []
    for rows in columns:
        first = np.flatnonzero(rows.phase == labels.phase("init"))[::-1]
        held.append({int(rows.name[row]): rows.digest[row].tobytes() for row in first})
    return {name for name, value in held[0].items() if all(other.get(name) == value for other in held[1:])}


def _parted(labels: Labels, columns: Sequence[Rows]) -> set[int]:
    """Return the names of parameters that differ after some step and after all later ones.

    Compared as far as all ranks step the same parameters in the same steps.
    """
    stepped = [rows.take(np.flatnonzero(rows.phase == labels.phase("param"))) for rows in columns]
    common = _common(stepped)
    first, *others = (rows.take(slice(0, common)) for rows in stepped)
    equal = np.ones(common, np.bool_)
    for rows in others:
        equal &= (rows.digest == first.digest).all(axis=1)
    begins, lasts = np.full(len(labels.names), common), np.full(len(labels.names), -1)
    np.minimum.at(begins, first.name[~equal], np.flatnonzero(~equal))
    np.maximum.at(lasts, first.name[equal], np.flatnonzero(equal))
    parted: Index = np.flatnonzero((begins < common) & (lasts < begins))
    return set(parted.tolist())


def _common(columns: Sequence[Rows]) -> int:
    """Return how many rows all ranks have of the same steps and names, from the first one on."""
    common = min(map(len, columns))
    for rows in columns[1:]:
        apart = (rows.step[:common] != columns[0].step[:common]) | (rows.name[:common] != columns[0].name[:common])
        common = int(np.argmax(apart)) if apart.any() else common
    return common
