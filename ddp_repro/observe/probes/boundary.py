"""What a step starts from besides optimizers: schedulers, scalers, models, and copies of models."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

from ddp_repro.observe.boundary import Item
from ddp_repro.observe.census import living
from ddp_repro.observe.digest import observation
from ddp_repro.observe.names import buffer_slots, parameter_slots, root_modules
from ddp_repro.observe.recorder import number
from ddp_repro.observe.replacement import Detach
from ddp_repro.observe.scene import Scene


def attach(scene: Scene) -> Detach:
    """Tell of schedulers and scalers before, of copies and models after what optimizers hold."""
    tellers = scene.boundary.tellers
    tellers[:0] = [_schedulers, _scalers]
    tellers.extend([lambda: _copies(scene), lambda: _models(scene)])
    return tellers.clear


def _schedulers() -> Iterator[Item]:
    """Yield the public numbers of each scheduler; what begins with ``_`` counts calls and moves no bit."""
    for index, scheduler in enumerate(_in_order(living(LRScheduler))):
        state = {**vars(scheduler)}
        for key, value in state.items():
            if not key.startswith("_") and isinstance(value, (bool, int, float)):
                yield (f"scheduler.{type(scheduler).__name__}[{index}].{key}", *number(value))


def _in_order(schedulers: list[LRScheduler]) -> list[LRScheduler]:
    """Return schedulers in an order that does not depend on where the collector keeps them."""
    return sorted(schedulers, key=lambda one: (type(one).__name__, repr(sorted(_numbers(one).items()))))


def _numbers(scheduler: LRScheduler) -> dict[str, Any]:
    return {key: value for key, value in vars(scheduler).items() if isinstance(value, (int, float))}


def _scalers() -> Iterator[Item]:
    scalers = [scaler for scaler in living(GradScaler) if scaler.is_enabled()]
    for scaler in scalers:
        for key, value in sorted(scaler.state_dict().items()):
            if key in ("scale", "_growth_tracker"):
                yield (f"scaler.{key.lstrip('_')}", *number(value))


def _copies(scene: Scene) -> Iterator[Item]:
    """Yield parameters and buffers of modules that are not trained: averaged copies, teachers."""
    trained = _trained_ids(scene)
    copies = [module for module in root_modules() if not _is_trained(module, trained)]
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
    for replica in scene.replicas:
        for slot, parameter, _ in replica.parameters:
            yield _item(f"param.{slot.name}", parameter)
    for name, parameter in scene.unmanaged.parameters():
        yield _item(f"param.{name}", parameter)


def _item(name: str, tensor: torch.Tensor) -> Item:
    spec, digest = observation(tensor)
    return (name, spec.text, digest, None)
