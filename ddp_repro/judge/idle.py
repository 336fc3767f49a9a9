"""Generators that nothing has drawn from yet, in one trace: what state they are in says nothing of the result."""

import numpy as np

from ddp_repro.judge.passes import split_name
from ddp_repro.judge.rows import Mask
from ddp_repro.judge.unused import generators_of, rows_of_generator
from ddp_repro.trace.observations import Trace


def idle_rows(trace: Trace) -> Mask:
    """Return which rows tell the state of a generator as it was before anything drew from it.

    The main process's is drawn from where its state is another one than when it was first seen; one of a loader where
    it is another one after a batch than before it.
    """
    idle = np.zeros(len(trace), np.bool_)
    for codes in generators_of(trace).values():
        rows = rows_of_generator(trace, codes)
        if split_name(trace.names[codes[0]]) is None:
            moved = (trace.digest[rows] != trace.digest[rows[:1]]).any(axis=1)
            idle[rows[: _until(moved)]] = True
        elif len(codes) == 2:
            before, after = (rows[trace.name[rows] == code] for code in codes)
            if len(before) == len(after):
                drawn = _until((trace.digest[before] != trace.digest[after]).any(axis=1))
                idle[before[:drawn]] = idle[after[:drawn]] = True
    return idle


def _until(moved: Mask) -> int:
    return int(np.argmax(moved)) if moved.any() else len(moved)
