"""The count of optimizer steps: of the optimizer that steps first, outermost steps only."""

import weakref
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.replacement import Detach, removing


def attach_counter(recorder: Recorder) -> Detach:
    """Count the steps of the optimizer that steps first, and observe nothing."""
    counter = StepCounter(recorder)

    def before(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        counter.begin(optimizer)

    def after(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        counter.end(optimizer)

    handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]

    return removing(handles)


class StepCounter:
    """Tells outermost steps from those within a step, and counts those of the optimizer that stepped first."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._leader: weakref.ref[Optimizer] | None = None
        self._stack: list[Optimizer] = []
        self.inner: list[Optimizer] = []
        """Optimizers that stepped within the step under way, as those in a ZeroRedundancyOptimizer do."""

    def begin(self, optimizer: Optimizer) -> bool:
        """Take note of a step that begins; tell whether it is an outermost one."""
        if any(other is optimizer for other in self._stack):
            self._stack.clear()  # its last step ended in an exception
        self._stack.append(optimizer)
        if len(self._stack) == 1:
            self.inner.clear()
            return True
        self.inner.append(optimizer)
        return False

    def leaves(self, optimizer: Optimizer) -> bool:
        """Tell whether the step that ends now is an outermost one."""
        return bool(self._stack) and self._stack[0] is optimizer

    def end(self, optimizer: Optimizer) -> None:
        """Take note of a step that ends; count it where it is the leader's."""
        if not self.leaves(optimizer):
            del self._stack[-1:]
            return
        self._stack.clear()
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        if self._leader() is optimizer:
            self._recorder.finish_step()
        else:
            self._recorder.flush()
