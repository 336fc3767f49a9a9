"""Around every module's forward, with ``capture=module`` and ``op``: what it returns, by the module's path."""

import logging
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddp_repro.observe import torch_internals
from ddp_repro.observe.digest import observation
from ddp_repro.observe.recorder import Row
from ddp_repro.observe.replacement import Detach, removing
from ddp_repro.observe.scene import Scene

_logger: Final = logging.getLogger(__name__)
_AROUND: Final = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def attach(scene: Scene) -> Detach:
    """Watch the forwards of all modules that are called with gradients on; within a compiled region none is seen."""
    probe = _ModuleProbe(scene)
    handles = [
        register_module_forward_pre_hook(probe.before),
        register_module_forward_hook(probe.after, always_call=True),
        register_optimizer_step_post_hook(probe.after_step),
    ]

    return removing(handles)


class _ModuleProbe:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._told_of_compiling = False

    def before(self, module: nn.Module, _args: Any) -> None:
        """Take note that a forward begins; with it the operators of the step may begin to be observed."""
        # A compiler traces through hooks: it must find nothing in them, or it compiles something else.
        if torch.compiler.is_compiling() or self._scene.recorder.silent or isinstance(module, _AROUND):
            return
        if torch.is_grad_enabled():
            self._scene.switch.begin()
            self._scene.paths.begin_step(self._scene.recorder.step)
            self._scene.paths.enter(module)

    def after(self, module: nn.Module, _args: Any, output: Any) -> None:
        """Record what a forward returned."""
        if torch.compiler.is_compiling() or self._scene.recorder.silent or isinstance(module, _AROUND):
            return
        path, step = self._scene.paths.leave(module), self._scene.recorder.step
        if path and self._scene.room.is_open(step):
            rows = list(_rows(step, path, output))
            self._scene.recorder.add_rows(rows)
            if self._scene.room.take(len(rows)):
                self._scene.recorder.add_rows([self._scene.room.full_row(step)])

    def after_step(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        """End what is observed of the operators of a step that was counted; tell what is left out."""
        self._scene.switch.end_if_over()
        self._scene.room.end_step()
        if not self._told_of_compiling and torch_internals.compiles():
            self._told_of_compiling = True
            _logger.info(
                "regions that torch.compile made stay compiled: what is fused in them is left out, modules within them "
                "are not seen, and what a compiled module returns as a whole is"
            )


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
