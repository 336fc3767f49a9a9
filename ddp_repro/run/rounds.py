"""Follows the optimizers' steps of a script from outside, and tells when a number of them is done."""

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Rounds:
    """Counts rounds of optimizer steps: a round ends where an optimizer that stepped in it steps again.

    With one optimizer a round is a step; with a generator and a discriminator one of each. What is counted depends on
    the order of the steps alone (not on which optimizers were collected by then), so ranks that step alike count alike.
    """

    def __init__(self) -> None:
        self.done = 0
        """Rounds that were begun; the last of them may be under way."""
        self._numbers: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._known = 0
        self._last: set[int] = set()
        self._current: set[int] = set()

    def begins(self, optimizer: Optimizer) -> bool:
        """Tell whether a step of ``optimizer`` would begin a new round."""
        return not self.done or self._numbers.get(optimizer) in self._current

    def add(self, optimizer: Optimizer) -> None:
        """Count a step that was done."""
        if self.begins(optimizer):
            self.done += 1
            self._last, self._current = self._current, set()
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self._known
            self._known += 1
        self._current.add(self._numbers[optimizer])

    @property
    def is_complete(self) -> bool:
        """Tell whether every optimizer of the round before has stepped in this one."""
        return self._last <= self._current


class StepWatch:
    """Calls back around the outermost steps of a process, and where ``limit`` rounds are done.

    ``before_first`` is called before the first step, ``after_each`` after each, ``at_limit`` once: at the end of the
    last step of round ``limit``, or before a step that would begin another round; with ``is_late`` only then, so that a
    script has done what it does after that round.
    """

    def __init__(
        self,
        *,
        limit: int | None,
        is_late: bool = False,
        before_first: Callable[[], None],
        after_each: Callable[[], None],
        at_limit: Callable[[], None],
    ) -> None:
        self._limit = limit
        self._is_late = is_late
        self._before_first, self._after_each, self._at_limit = before_first, after_each, at_limit
        self._rounds = Rounds()
        self._under_way: list[Optimizer] = []  # an optimizer such as ZeRO's steps another one within its step

    @property
    def steps(self) -> int:
        """Rounds of steps that were begun."""
        return self._rounds.done

    def attach(self) -> None:
        """Watch all optimizers from now on; attached after the probes, this sees a step that is recorded."""
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)

    def _before(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if any(other is optimizer for other in self._under_way):
            self._under_way.clear()  # its last step ended in an exception
        self._under_way.append(optimizer)
        if len(self._under_way) > 1:
            return
        if self._rounds.done == 0:
            self._before_first()
        elif self._rounds.done == self._limit and self._rounds.begins(optimizer):
            self._at_limit()

    def _after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if not self._under_way or self._under_way[0] is not optimizer:
            del self._under_way[-1:]
            return
        self._under_way.clear()
        self._rounds.add(optimizer)
        self._after_each()
        if not self._is_late and self._rounds.done == self._limit and self._rounds.is_complete:
            self._at_limit()
