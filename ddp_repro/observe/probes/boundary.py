"""What a step starts from besides optimizers: schedulers, scalers, models, and copies of models."""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ddp_repro.observe.boundary import Item
from ddp_repro.observe.census import living_of
from ddp_repro.observe.digest import observation
from ddp_repro.observe.names import buffer_slots, parameter_slots, root_modules
from ddp_repro.observe.recorder import number
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.scene import Scene
from ddp_repro.observe.standing import is_distributed

_T = TypeVar("_T")


def attach(scene: Scene) -> Detach:
    """Tell of schedulers and scalers before, of copies and models after what optimizers hold."""
    boundary, discard, holders = scene.boundary, _Discard(scene), Holders()
    if not boundary.is_wanted:
        return lambda: None
    detach = holders.attach()
    boundary.tellers[:0] = [lambda: _schedulers(holders), lambda: _scalers(holders)]
    boundary.tellers.extend([lambda: _copies(scene, holders), lambda: _models(scene)])
    boundary.was_discarded, boundary.told = discard.happened, discard.forget

    def take_off() -> None:
        boundary.tellers.clear()
        detach()

    return take_off


class Holders:
    """Schedulers, scalers and whole modules of this process, looked for anew only where some may have come."""

    def __init__(self) -> None:
        self._stale = True
        self._found: list[weakref.ref[Any]] = []

    def attach(self) -> Detach:
        """Take note of what is made from now on; of modules, what gets a parameter or is copied."""
        hook = register_module_parameter_registration_hook(lambda *_: self._note())
        makers = [(LRScheduler, "__init__"), (ReduceLROnPlateau, "__init__"), (GradScaler, "__init__")]
        makers.append((nn.Module, "__setstate__"))  # by which copies are made
        restores = [replace_attribute(owner, name, self._noting) for owner, name in makers]

        def detach() -> None:
            hook.remove()
            for restore in reversed(restores):
                restore()

        return detach

    def of(self, kind: type[_T]) -> list[_T]:
        """Return the living ones of ``kind`` and its subclasses."""
        if self._stale:
            self._stale = False
            things: list[Any] = [*living_of((LRScheduler, GradScaler)), *root_modules()]
            self._found = [weakref.ref(thing) for thing in things]
        return [thing for thing in (reference() for reference in self._found) if isinstance(thing, kind)]

    def _note(self) -> None:
        self._stale = True

    def _noting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def noting(*args: Any, **kwargs: Any) -> Any:
            self._stale = True
            return make(*args, **kwargs)

        return noting


class _Discard:
    """Knows whether a backward since the boundary was told has left no gradients: it was discarded."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._known = 0

    def forget(self) -> None:
        """Begin to look anew."""
        self._known = self._scene.backwards.count

    def happened(self) -> bool:
        """Tell whether it happened; gradients of zeros are none."""
        if self._scene.backwards.count == self._known:
            return False
        return not any(_has_gradient(parameter) for _, parameter in _trained(self._scene))


def _has_gradient(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    if gradient is None:
        return False
    if is_distributed(gradient):
        gradient = gradient.to_local()  # type: ignore[attr-defined]  # a collective must not run here
    return gradient.layout is not torch.strided or bool(gradient.any())


def _schedulers(holders: Holders) -> Iterator[Item]:
    """Yield the public numbers of each scheduler; what begins with ``_`` counts calls and moves no bit."""
    for index, scheduler in enumerate(_in_order(holders.of(LRScheduler))):
        for key, value in _numbers(scheduler).items():
            if not key.startswith("_"):
                yield (f"scheduler.{type(scheduler).__name__}[{index}].{key}", *number(value))


def _in_order(schedulers: list[LRScheduler]) -> list[LRScheduler]:
    """Return schedulers in an order that does not depend on where the collector keeps them."""
    return sorted(schedulers, key=lambda one: (type(one).__name__, repr(sorted(_numbers(one).items()))))


def _numbers(scheduler: LRScheduler) -> dict[str, Any]:
    return {key: value for key, value in vars(scheduler).items() if isinstance(value, (int, float))}


def _scalers(holders: Holders) -> Iterator[Item]:
    for scaler in [one for one in holders.of(GradScaler) if one.is_enabled()]:
        state = scaler.state_dict()
        for key in ("scale", "_growth_tracker"):
            if key in state:
                yield (f"scaler.{key.lstrip('_')}", *number(state[key]))


def _copies(scene: Scene, holders: Holders) -> Iterator[Item]:
    """Yield parameters and buffers of modules that are not trained: averaged copies, teachers."""
    trained = _trained_ids(scene)
    copies = [module for module in holders.of(nn.Module) if not _is_trained(module, trained)]
    told: dict[str, list[list[Item]]] = {}
    for module in copies:
        items = [_item(slot.name, slot.owner[slot.key]) for slot in parameter_slots(module, "")]
        items += [_item(slot.name, slot.owner[slot.key]) for slot in buffer_slots(module, "")]
        if items:
            told.setdefault(type(module).__name__, []).append(items)
    for kind, alike in sorted(told.items()):
        for index, items in enumerate(sorted(alike, key=lambda some: [item[:3] for item in some])):
            for name, spec, digest, value in items:
                yield f"copy.{kind}[{index}].{name}", spec, digest, value


def _trained_ids(scene: Scene) -> set[int]:
    return scene.replicas.parameter_ids() | scene.unmanaged.optimized_ids()


def _is_trained(module: nn.Module, trained: set[int]) -> bool:
    return isinstance(module, DistributedDataParallel) or any(id(one) in trained for one in module.parameters())


def _models(scene: Scene) -> Iterator[Item]:
    for name, parameter in _trained(scene):
        yield _item(f"param.{name}", parameter)


def _trained(scene: Scene) -> Iterator[tuple[str, torch.Tensor]]:
    for replica in scene.replicas:
        for slot, parameter, _ in replica.parameters:
            yield slot.name, parameter
    yield from scene.unmanaged.parameters()


def _item(name: str, tensor: torch.Tensor) -> Item:
    spec, digest = observation(tensor)
    return (name, spec.text, digest, None)
