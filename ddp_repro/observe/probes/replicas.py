"""Sees modules come under DDP: initial values, local gradients, buffers on entry to the forward."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.observe import torch_internals
from ddp_repro.observe.census import living
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.replicas import Replica
from ddp_repro.observe.scene import Scene


def attach(scene: Scene) -> Detach:
    """Watch the DDP objects that there are and those that are built from now on."""
    active = [True]
    for ddp in living(DistributedDataParallel):
        if "module" in vars(ddp).get("_modules", {}):
            _observe(scene, ddp)
    restore = replace_attribute(DistributedDataParallel, "__init__", lambda init: _watched_init(init, scene, active))

    def detach() -> None:
        active[0] = False
        restore()
        scene.replicas.release()

    return detach


def _watched_init(init: Callable[..., None], scene: Scene, active: list[bool]) -> Callable[..., None]:
    @functools.wraps(init)
    def watched(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if active[0] and not scene.recorder.silent and not scene.replicas.knows(self):
            _observe(scene, self)

    return watched


def _observe(scene: Scene, ddp: DistributedDataParallel) -> None:
    replica = scene.replicas.add(ddp)
    replica.record_initial(scene.recorder)
    replica.hook_parameters(scene.recorder, scene.names)
    replica.hook_module(_EntryHook(scene, replica))


class _EntryHook:
    """A forward pre-hook on one module; in a copy of that module, as EMA makes them, it does nothing.

    The copy, or a pickle of the module, gets a built-in function in its place that returns the inputs as they are.
    """

    def __init__(self, scene: Scene, replica: Replica) -> None:
        self._scene = scene
        self._replica = weakref.ref(replica)

    def __call__(self, module: nn.Module, _inputs: Any) -> None:
        entered = self._replica()
        if entered is not None and entered.module() is module:
            _enter(self._scene, entered)

    def __deepcopy__(self, _memo: Any) -> Any:
        return {}.get

    def __reduce__(self) -> Any:
        return getattr, ({}, "get")


def _enter(scene: Scene, replica: Replica) -> None:
    ddp = replica.ddp()
    if ddp is None:
        return
    if not replica.is_current():
        replica.refresh()
    if replica.has_unhooked():
        replica.hook_parameters(scene.recorder, scene.names)
    replica.entered = True
    synchronised = torch_internals.buffers_were_synchronised(ddp)
    if torch.is_grad_enabled():
        replica.synchronises = ddp.require_backward_grad_sync
    elif not synchronised:
        return
    replica.record_buffers(scene.recorder, replicated=synchronised or torch_internals.never_synchronises_buffers(ddp))
