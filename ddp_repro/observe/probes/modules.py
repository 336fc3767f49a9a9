"""Around every module's forward, with ``capture=module`` and ``op``: what it returns, by the module's path."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddp_repro.observe.digest import observation
from ddp_repro.observe.recorder import Row
from ddp_repro.observe.replacement import Detach
from ddp_repro.observe.scene import Scene

_AROUND = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def attach(scene: Scene) -> Detach:
    """Watch the forwards of all modules that are called with gradients on; within a compiled region none is seen."""

    def before(module: nn.Module, _args: Any) -> None:
        # A compiler traces through hooks: it must find nothing in them, or it compiles something else.
        if torch.compiler.is_compiling() or scene.recorder.silent or isinstance(module, _AROUND):
            return
        if torch.is_grad_enabled():
            scene.switch.begin()
            scene.paths.begin_step(scene.recorder.step)
            scene.paths.enter(module)

    def after(module: nn.Module, _args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or scene.recorder.silent or isinstance(module, _AROUND):
            return
        path = scene.paths.leave(module)
        if path and scene.room.is_open(scene.recorder.step):
            rows = list(_rows(scene.recorder.step, path, output))
            scene.recorder.add_rows(rows)
            scene.room.take(len(rows))

    def after_step(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        scene.switch.end_if_over()
        scene.room.end_step()

    handles = [
        register_module_forward_pre_hook(before),
        register_module_forward_hook(after, always_call=True),
        register_optimizer_step_post_hook(after_step),
    ]

    def detach() -> None:
        for handle in handles:
            handle.remove()

    return detach


def _rows(step: int, name: str, output: Any) -> Iterator[Row]:
    """Yield a row for each tensor in what a module returned."""
    if isinstance(output, torch.Tensor):
        try:
            spec, digest = observation(output)
        except (RuntimeError, NotImplementedError):  # tensors without memory: fake ones, those of vmap
            return
        yield step, "forward", name, spec.text, digest, None
    elif isinstance(output, (list, tuple)):
        for number, part in enumerate(output):
            yield from _rows(step, f"{name}[{number}]", part)
    elif isinstance(output, dict):
        for key, part in output.items():
            yield from _rows(step, f"{name}.{key}", part)
