"""Sees modules come under DDP: initial values, local gradients, buffers on entry to the forward."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.observe import torch_internals
from ddp_repro.observe.census import living
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.replicas import Replica
from ddp_repro.observe.scene import Scene


def attach(scene: Scene) -> Detach:
    """Watch the DDP objects that there are and those that are built from now on."""
    active = [True]
    for known in living(DistributedDataParallel):
        if "module" in vars(known).get("_modules", {}):
            _observe(scene, known)
    ddp = DistributedDataParallel
    restores = [
        replace_attribute(ddp, "__init__", lambda init: _watched_init(init, scene, active)),
        replace_attribute(ddp, torch_internals.INSIDE_FORWARD, lambda inside: _watched_inside(inside, scene, active)),
    ]

    def detach() -> None:
        active[0] = False
        for restore in restores:
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


def _watched_inside(inside: Callable[..., Any], scene: Scene, active: list[bool]) -> Callable[..., Any]:
    """Return the context in which DDP calls its module; no compiler traces into it, watched or not."""

    @functools.wraps(inside)
    def watched(self: DistributedDataParallel) -> Any:
        replica = scene.replicas.get(self) if active[0] and not scene.recorder.silent else None
        if replica is not None:
            _enter(scene, replica)
        return inside(self)

    return torch_internals.untraced(watched)


def _enter(scene: Scene, replica: Replica) -> None:
    ddp = replica.ddp()
    if ddp is None:
        return
    replica.keep_up(scene.recorder, scene.names)
    replica.entered = True
    if torch.is_grad_enabled():
        scene.boundary.reach(enters=True)
    synchronised = torch_internals.buffers_were_synchronised(ddp)
    if torch.is_grad_enabled():
        replica.synchronises = ddp.require_backward_grad_sync
    elif not synchronised:
        return
    replica.record_buffers(scene.recorder, replicated=synchronised or torch_internals.never_synchronises_buffers(ddp))
