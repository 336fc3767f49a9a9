"""Sees optimizers come: those that there are, those that are made, and groups that are added."""

import functools
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from ddp_repro.observe.census import living
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.scene import Scene


def attach(scene: Scene) -> Detach:
    """Take note of all optimizers, for the parameters that no DDP manages."""
    active = [True]
    for optimizer in living(Optimizer):
        scene.unmanaged.meet(optimizer)
    restore = replace_attribute(Optimizer, "add_param_group", lambda add: _watched_add(add, scene, active))

    def detach() -> None:
        active[0] = False
        restore()
        scene.unmanaged.release()

    return detach


def _watched_add(add: Callable[..., None], scene: Scene, active: list[bool]) -> Callable[..., None]:
    @functools.wraps(add)
    def watched(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        add(self, *args, **kwargs)
        if active[0] and not scene.recorder.silent:
            scene.unmanaged.meet(self)

    return watched
