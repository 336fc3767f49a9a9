"""Where a training is stopped to be restarted: the points that are asked for, or that its epochs tell."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ddp_repro.config import ResumeOptions, Stop
from ddp_repro.errors import ReproError

Stops = tuple[int, ...]
"""Optimizer steps after which one training is stopped, one stop after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long the training is: its optimizer steps, and the steps at which its epochs begin (the first is 0)."""

    steps: int
    epochs: tuple[int, ...]

    @property
    def first_epoch(self) -> int:
        """Return the steps of the first epoch."""
        return self.epochs[1] if len(self.epochs) > 1 else self.steps


def asked_for(options: ResumeOptions) -> list[Stops] | None:
    """Return the stops that ``resume.at`` or ``resume.stop_after`` name, ``None`` where they name none.

    Raises ReproError for what is no step.
    """
    at = options.at or ([] if options.stop_after is None else [options.stop_after])
    return [_stops(one) for one in at] if at else None


def _stops(one: Any) -> Stops:
    steps = one if isinstance(one, list) else [one]
    ascending = all(isinstance(step, int) and not isinstance(step, bool) and step >= 1 for step in steps)
    if not steps or not ascending or any(a >= b for a, b in pairwise(steps)):
        raise ReproError(
            f"resume.at holds {one}, which is no step and no rising list of steps.",
            hint="Name optimizer steps, 1 or more: 'resume.at=[5,9]'; stopped twice on the way: 'resume.at=[[3,6]]'.",
        )
    return tuple(steps)


def points(options: ResumeOptions, extent: Extent) -> list[Stops]:
    """Return where the training is stopped: as asked for, or where resuming goes wrong in practice.

    That is in mid-epoch, at an epoch's end, after an epoch's first step, twice within one epoch, and after the very
    first step. Raises ReproError where the training is not that long.
    """
    wanted = asked_for(options)
    if wanted is None:
        end = extent.first_epoch
        told = [(end // 2,), (end,), (end + 1,), (end // 3, 2 * end // 3), (1,)]
        wanted = [stops for stops in dict.fromkeys(told) if _fits(stops, extent)]
    else:
        for stops in wanted:
            _refuse_late(stops, extent)
    if options.stop is Stop.kill:
        wanted = list(dict.fromkeys(_between_checkpoints(stops, every_of(options, extent)) for stops in wanted))
        wanted = [stops for stops in wanted if _fits(stops, extent)]
    if not wanted:
        raise ReproError(
            f"the training takes {extent.steps} optimizer steps: there is no point at which it can be stopped.",
            hint="Make it longer: train.max_steps=8, or a smaller resume.every with resume.stop=kill.",
        )
    return wanted


def every_of(options: ResumeOptions, extent: Extent) -> int:
    """Return the steps between two checkpoints of a training that is killed."""
    return options.every or max(1, extent.first_epoch // 4)


def _between_checkpoints(stops: Stops, every: int) -> Stops:
    """Return the stops, each after a checkpoint was saved and, where there is room, before the next one."""
    moved: list[int] = []
    for step in stops:
        after = max(step, every, moved[-1] + every if moved else 0)
        moved.append(after + 1 if every > 1 and after % every == 0 else after)
    return tuple(moved)


def _fits(stops: Stops, extent: Extent) -> bool:
    rising = all(a < b for a, b in pairwise(stops))
    return rising and stops[0] >= 1 and stops[-1] < extent.steps


def _refuse_late(stops: Stops, extent: Extent) -> None:
    if stops[-1] >= extent.steps:
        raise ReproError(
            f"resume.at names step {stops[-1]}, and the training takes {extent.steps} optimizer steps.",
            hint=f"Stop it after 1 to {extent.steps - 1} steps, or make it longer.",
        )
