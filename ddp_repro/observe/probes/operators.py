"""Around the backward and each optimizer's step, with ``capture=op``: when operators begin to be observed."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ddp_repro.observe import torch_internals
from ddp_repro.observe.replacement import Detach, removing, replace_attribute
from ddp_repro.observe.scene import Scene


def attach(scene: Scene) -> Detach:
    """Observe operators from the first forward or backward of a step in the window to the end of the step.

    Attached before the probe of the backward, so that what collectives left is read before the reduced gradients are.
    The step's end is seen by the probe of modules, which is attached last.
    """
    active = [True]
    scene.switch.is_wanted = True
    restore = replace_attribute(
        torch_internals.BACKWARD_OWNER,
        torch_internals.BACKWARD_NAME,
        lambda engine: _watched_engine(engine, scene, active),
    )

    def before(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if not scene.recorder.silent:
            scene.switch.begin()
            scene.operators.steps_under_way += 1

    def after(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        scene.operators.steps_under_way = max(0, scene.operators.steps_under_way - 1)

    remove = removing([register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)])

    def detach() -> None:
        active[0] = False
        scene.switch.end()
        remove()
        restore()

    return detach


def _watched_engine(engine: Callable[..., Any], scene: Scene, active: list[bool]) -> Callable[..., Any]:
    lock, depth = threading.Lock(), [0]

    def change(by: int) -> int:
        with lock:
            depth[0] += by
            return depth[0]

    @functools.wraps(engine)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if not active[0] or scene.recorder.silent:
            return engine(*args, **kwargs)
        scene.switch.begin()
        change(1)
        try:
            return engine(*args, **kwargs)
        finally:
            if change(-1) == 0:
                scene.operators.complete()

    return watched
