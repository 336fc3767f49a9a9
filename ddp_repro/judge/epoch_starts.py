"""How long a training was, and at which steps its epochs began, as a rank's trace shows it."""

import numpy as np

from ddp_repro.judge.passes import passes_of
from ddp_repro.trace.reader import Trace


def steps_done(trace: Trace) -> int:
    """Return the number of steps of the optimizer that steps first: what it takes and leaves is recorded.

    What others leave after its last step stands with a step that it does not take.
    """
    phase = next((phase for phase in ("grad_step", "param") if phase in trace.phases), None)
    if phase is None:
        return 0
    rows = trace.phase == trace.phases.index(phase)
    leaders = trace.name[rows & (trace.step == trace.step[rows].min(initial=0))]
    return int(trace.step[rows & np.isin(trace.name, leaders)].max(initial=-1)) + 1


def epoch_starts(trace: Trace) -> list[int]:
    """Return the steps at which passes over the loader that is trained from began, the first of them 0."""
    trained = [one for one in passes_of(trace) if one.trains]
    if not trained:
        return [0]
    loader = trained[0].loader
    return sorted({one.step for one in trained if one.loader == loader})
