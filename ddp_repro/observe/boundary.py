"""The boundary before a step: all that the step starts from, read where a run is stopped and restarted."""

from collections.abc import Callable, Iterable
from typing import Final

from ddp_repro.observe.recorder import Recorder, Row, Scalar
from ddp_repro.observe.rng_states import DrawnStates
from ddp_repro.trace.schema import BOUNDARY_STATE

Wanted = Callable[[int], bool]
"""Tells of a step (optimizer steps done before it) whether its boundary is to be recorded; asked at each tell."""

Item = tuple[str, *Scalar]
"""Name, spec, digest and value of one thing that a step starts from."""

PHASE: Final = "boundary"


def no_boundary(_step: int) -> bool:
    """Record no boundary."""
    return False


class Boundary:
    """Records what a step starts from, at the first thing that it computes.

    That is the entry of a forward under DDP, a backward or the optimizer's step, whichever comes first: by then a
    script has loaded what it saves, and has left the batches behind that it skips. Where a forward and a backward were
    discarded before the state was loaded (DDP's first iteration is not like the others), it is told again at the next
    one: the last one counts. ``tellers`` give the items, in the order in which they are told. Generators' states are
    told with each forward of each step, so that it shows which of them move.
    """

    def __init__(self, recorder: Recorder, wanted: Wanted) -> None:
        self.tellers: list[Callable[[], Iterable[Item]]] = []
        self.was_discarded: Callable[[], bool] = lambda: False
        """Tells whether a backward came since this was last asked at a tell, and its gradients are gone."""
        self.told: Callable[[], None] = lambda: None
        """Called when the boundary is told."""
        self._recorder = recorder
        self._wanted = wanted
        self._is_reached = False
        self._is_entered = False
        self._generators = DrawnStates() if wanted is not no_boundary else None

    @property
    def is_wanted(self) -> bool:
        """Whether the boundary before any step is to be recorded."""
        return self._generators is not None

    def reach(self, *, enters: bool = False) -> None:
        """Record the boundary before the step that is under way, where due; ``enters``: at a forward's entry."""
        if self._generators is None:
            return
        begins, step = not self._is_reached, self._recorder.step
        again = not begins and self.was_discarded()
        rows: list[Row] = []
        if begins or again:
            self._is_reached = True
            self.told()
            if self._wanted(step):
                rows.extend((step, PHASE, *item) for teller in self.tellers for item in teller())
        if begins or enters or (again and not self._is_entered):
            states = self._generators.states()
            rows.extend((step, "rng", name, BOUNDARY_STATE, digest, None) for name, digest in states)
        self._is_entered = enters or (self._is_entered and not begins)
        self._recorder.add_rows(rows)

    def leave(self) -> None:
        """Take note of an optimizer's step that was done: what is computed next begins another one."""
        self._is_reached = False
