"""The boundary before a step: all that the step starts from, read where a run is stopped and restarted."""

from collections.abc import Callable, Iterable
from typing import Final

from ddp_repro.observe.recorder import Recorder, Scalar
from ddp_repro.observe.rng_states import SPEC, DrawnStates

Wanted = Callable[[int], bool]
"""Tells of a step (optimizer steps done before it) whether its boundary is to be recorded."""

Item = tuple[str, *Scalar]
"""Name, spec, digest and value of one thing that a step starts from."""

PHASE: Final = "boundary"


def no_boundary(_step: int) -> bool:
    """Record no boundary."""
    return False


class Boundary:
    """Records what a step starts from, once, at the first thing that the step computes.

    That is the entry of a forward under DDP, a backward or the optimizer's step, whichever comes first: by then a
    script has loaded what it saves, and has left the batches behind that it skips. ``tellers`` give the items, in the
    order in which they are told. Generators' states are told here where no loader delivered a batch in this step, at
    which they are observed anyway.
    """

    def __init__(self, recorder: Recorder, wanted: Wanted) -> None:
        self.tellers: list[Callable[[], Iterable[Item]]] = []
        self.delivered_in: int | None = None
        """The last step in which a loader delivered a batch."""
        self._recorder = recorder
        self._wanted = wanted
        self._told: int | None = None
        self._generators = DrawnStates() if wanted is not no_boundary else None

    @property
    def is_wanted(self) -> bool:
        """Whether the boundary before any step is to be recorded."""
        return self._generators is not None

    def reach(self) -> None:
        """Record the boundary before the step that is under way, where that is wanted and has not been done."""
        step = self._recorder.step
        if step == self._told:
            return
        self._told = step
        if self._generators is None or not self._wanted(step):
            return
        rows = [(step, PHASE, *item) for teller in self.tellers for item in teller()]
        if self.delivered_in != step:
            rows.extend((step, "rng", name, SPEC, digest, None) for name, digest in self._generators.states())
        self._recorder.add_rows(rows)
