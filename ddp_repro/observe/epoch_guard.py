"""Sees that a shuffling sampler or data set is told the epoch before each further pass that trains."""

import functools
import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch.utils.data import DataLoader

from ddp_repro.errors import ReproError
from ddp_repro.observe.epoch_settings import Settings, integers_of, is_shared
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.samplers import epoch_datasets, epoch_samplers
from ddp_repro.observe.torch_internals import task_queues

MODES: Final = ("report", "error", "fix")
NOT_CALLED, NOT_REACHED = 1, 2
"""Values of the row ``guard``: nobody called ``set_epoch``, or the call did not reach the workers' copies."""

_logger: Final = logging.getLogger(__name__)

Facts = dict[str, int]


class Training(Protocol):
    """A pass, as far as the guard knows it."""

    trained: bool
    """Whether a backward ran in the course of it."""


@dataclass(frozen=True, slots=True)
class SetEpoch:
    """A word to a worker that stays: call ``set_epoch`` of its copy, the ``place``-th that takes epochs."""

    place: int
    arguments: tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class _Turn:
    """What is known of one sampler or data set that takes epochs."""

    thing: weakref.ref[Any]
    passes: int = 0
    since_call: list[Training] = field(default_factory=list)
    arguments: tuple[Any, ...] | None = None
    """Those of the last call since the last pass began; ``None``: there was none."""
    changed: Settings = field(default_factory=dict)
    """What that call changed in the main process."""
    seen: Settings = field(default_factory=dict)
    """The settings as the last pass began."""


class EpochGuard:
    """Watches ``set_epoch`` of what loaders iterate. Mode ``report`` tells, ``error`` stops, ``fix`` calls it."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._turns: dict[int, _Turn] = {}
        self._replaced: dict[type, Detach] = {}

    def release(self) -> None:
        """Put back every ``set_epoch`` that is watched."""
        for restore in self._replaced.values():
            restore()
        self._replaced.clear()
        self._turns.clear()

    def begin(self, loader: DataLoader[Any], current: Training, again: Any | None) -> Facts:
        """Take note of a pass that begins, before its sampler does; return the facts to be recorded.

        ``again`` is the iterator where its workers stay from an earlier pass. Raises ``ReproError`` in mode ``error``.
        """
        facts: Facts = {}
        stay = again is not None and loader.num_workers > 0
        for thing, place in _takers(loader):
            turn = self._turn(thing)
            if turn is None:
                continue
            copied = stay and place is not None
            if _is_stale(turn, thing):
                facts |= self._tell(turn, thing, "is iterated again without a call of set_epoch since the last epoch")
            if copied and place is not None and self._mode == "fix" and turn.arguments is not None:
                facts |= _send(again, SetEpoch(place, turn.arguments), turn, thing)
            turn.passes += 1
            turn.since_call.append(current)
            turn.seen = integers_of(thing)
            if not copied:
                turn.changed = {}
            turn.arguments = None
        return facts

    def arrived(self, loader: DataLoader[Any], settings: list[Settings]) -> Facts:
        """Compare what a worker that stayed holds (by place) with what was called here; return facts."""
        for thing, there in zip(epoch_datasets(loader.dataset), settings, strict=False):
            turn = self._turns.get(id(thing))
            if turn is None:
                continue
            missed = any(there.get(name, value) != value for name, value in turn.changed.items())
            turn.changed = {}
            if missed:
                text = "was told the epoch in the main process, and its copies in persistent workers were not"
                return self._report(thing, text, NOT_REACHED)
        return {}

    def _turn(self, thing: Any) -> _Turn | None:
        turn = self._turns.get(id(thing))
        if turn is not None and turn.thing() is thing:
            return turn
        with suppress(TypeError):  # no weak reference, or a class that cannot be written to: then it is not guarded
            if type(thing) not in self._replaced:
                self._replaced[type(thing)] = replace_attribute(type(thing), "set_epoch", self._watched)
            turn = self._turns[id(thing)] = _Turn(thing=weakref.ref(thing))
            return turn
        return None

    def _watched(self, set_epoch: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(set_epoch)
        def watched(thing: Any, *arguments: Any, **named: Any) -> Any:
            turn = self._turns.get(id(thing))
            before = integers_of(thing) if turn is not None else {}
            result = set_epoch(thing, *arguments, **named)
            if turn is not None:
                turn.arguments = (*arguments, *named.values())
                turn.changed |= {name: x for name, x in integers_of(thing).items() if before.get(name) != x}
                turn.since_call.clear()
            return result

        return watched

    def _tell(self, turn: _Turn, thing: Any, text: str) -> Facts:
        if self._mode != "fix":
            return self._report(thing, text, NOT_CALLED)
        thing.set_epoch(turn.passes)
        _logger.warning("%s %s: set_epoch(%d) was called for it", type(thing).__name__, text, turn.passes)
        return {"guard_fixed": turn.passes}

    def _report(self, thing: Any, text: str, value: int) -> Facts:
        if self._mode == "error":
            raise ReproError(
                f"{type(thing).__name__} {text}",
                hint="call set_epoch(epoch) before each epoch, on the object that the loader iterates (without"
                " persistent_workers where it is the data set), or use epoch_guard=report or epoch_guard=fix",
            )
        _logger.warning("%s %s", type(thing).__name__, text)
        return {"guard": value}


def _takers(loader: DataLoader[Any]) -> list[tuple[Any, int | None]]:
    """Return what takes epochs, each with its place among the data sets, of which workers hold copies."""
    samplers: list[tuple[Any, int | None]] = [(thing, None) for thing in epoch_samplers(loader)]
    return samplers + [(thing, place) for place, thing in enumerate(epoch_datasets(loader.dataset))]


def _is_stale(turn: _Turn, thing: Any) -> bool:
    """Tell whether a pass trained since the epoch was last set, or counted by the thing itself."""
    if turn.passes and integers_of(thing) != turn.seen:
        turn.since_call.clear()
    return torch.is_grad_enabled() and any(one.trained for one in turn.since_call)


def _send(iterator: Any, word: SetEpoch, turn: _Turn, thing: Any) -> Facts:
    if is_shared(thing, turn.changed):
        return {}
    for queue in task_queues(iterator):
        queue.put(word)
    _logger.warning("%s: set_epoch was called in the workers that stay, as in the main process", type(thing).__name__)
    first = word.arguments[0] if word.arguments else turn.passes
    return {"guard_fixed": int(first)}
