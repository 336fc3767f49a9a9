"""Generators that nobody drew from: in what state they are says nothing of the result."""

import re
from typing import Final

import numpy as np

from ddp_repro.judge.leftout import Marked, Reason
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.rows import Index
from ddp_repro.trace.reader import Trace

_SIDE: Final = re.compile(r"\.(before|after)$")

_Codes = dict[str, list[int]]


def leave_out_unused(a: Marked, b: Marked) -> None:
    """Leave out the states of generators that never moved in either trace, where they differ.

    A generator that nobody seeds is in another state in each process; that counts once something draws from it. The
    main process's moved where its state is another one than at the batch before; one of a loader where it is another
    one after a batch than before it.
    """
    mine, theirs = generators_of(a.trace), generators_of(b.trace)
    for name in mine.keys() & theirs.keys():
        rows = [rows_of_generator(side.trace, codes) for side, codes in ((a, mine[name]), (b, theirs[name]))]
        rows = [kept[~side.left[kept]] for side, kept in zip((a, b), rows, strict=True)]
        if _moved(a.whole, mine[name]) or _moved(b.whole, theirs[name]):
            continue
        if not np.array_equal(a.trace.digest[rows[0]], b.trace.digest[rows[1]]):
            a.leave_out(rows[0], Reason.UNUSED)
            b.leave_out(rows[1], Reason.UNUSED)


def generators_of(trace: Trace) -> _Codes:
    """Return the name codes of each generator: one for the main process's, those before and after for a loader's."""
    found: _Codes = {}
    for code in np.unique(trace.name[_of_rng(trace)]):
        name = trace.names[code]
        found.setdefault(name if split_name(name) is None else _SIDE.sub("", name), []).append(int(code))
    return found


def _of_rng(trace: Trace) -> Index:
    return np.flatnonzero(trace.phase == (trace.phases.index("rng") if "rng" in trace.phases else -1))


def rows_of_generator(trace: Trace, codes: list[int]) -> Index:
    """Return the rows of one of ``generators_of``."""
    rows = _of_rng(trace)
    return rows[np.isin(trace.name[rows], codes)]


def _moved(trace: Trace, codes: list[int]) -> bool:
    if split_name(trace.names[codes[0]]) is None:
        digests = trace.digest[rows_of_generator(trace, codes)]
        return bool((digests != digests[:1]).any())
    if len(codes) != 2:
        return True
    before, after = (trace.digest[rows_of_generator(trace, [code])] for code in codes)
    return not np.array_equal(before, after)
