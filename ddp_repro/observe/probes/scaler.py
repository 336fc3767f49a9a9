"""After ``GradScaler.update``: the scale that the next backward gets."""

import functools
from collections.abc import Callable
from typing import Any

from torch.amp import GradScaler

from ddp_repro.observe.recorder import number
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.scene import Scene


def attach(scene: Scene) -> Detach:
    """Watch the updates of gradient scalers."""
    active = [True]
    restore = replace_attribute(GradScaler, "update", lambda update: _watched_update(update, scene, active))

    def detach() -> None:
        active[0] = False
        restore()

    return detach


def _watched_update(update: Callable[..., None], scene: Scene, active: list[bool]) -> Callable[..., None]:
    steps_seen = scene.recorder.step

    @functools.wraps(update)
    def watched(self: GradScaler, *args: Any, **kwargs: Any) -> None:
        nonlocal steps_seen
        update(self, *args, **kwargs)
        recorder = scene.recorder
        if not active[0] or recorder.silent or not self.is_enabled():
            return
        # It belongs to the step that has just been counted, or to the one under way where the step was skipped.
        step = recorder.step - 1 if recorder.step > steps_seen else recorder.step
        steps_seen = recorder.step
        recorder.rows.append((step, "scaler", "scale", *number(float(self.get_scale()))))

    return watched
