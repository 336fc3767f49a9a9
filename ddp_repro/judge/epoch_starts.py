"""How long a training was, and at which steps its epochs began, as a rank's trace shows it."""

import numpy as np

from ddp_repro.judge.passes import passes_of
from ddp_repro.trace.reader import Trace


def steps_done(trace: Trace) -> int:
    """Return the number of optimizer steps: parameters are recorded after each."""
    rows = np.isin(trace.phase, [code for code, phase in enumerate(trace.phases) if phase == "param"])
    return int(trace.step[rows].max(initial=-1)) + 1


def epoch_starts(trace: Trace) -> list[int]:
    """Return the steps at which passes over the loader that is trained from began, the first of them 0."""
    trained = [one for one in passes_of(trace) if one.trains]
    if not trained:
        return [0]
    loader = trained[0].loader
    return sorted({one.step for one in trained if one.loader == loader})
