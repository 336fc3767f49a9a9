"""Averaged copies of a model (``torch.optim.swa_utils.AveragedModel``), read where they are used: as a forward begins.

A copy that is kept and used on one rank alone is a way to save time and no fault, so nothing is read as it is updated.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.swa_utils import AveragedModel

from ddp_repro.observe.digest import observation, spec_of
from ddp_repro.observe.names import parameter_slots
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.scene import Scene
from ddp_repro.observe.torch_internals import untraced


def attach(scene: Scene) -> Detach:
    """Watch the forwards of averaged models from now on."""
    probe = _Averages(scene)
    restore = replace_attribute(AveragedModel, "forward", probe.watched)

    def detach() -> None:
        probe.active = False
        restore()

    return detach


class _Averages:
    def __init__(self, scene: Scene) -> None:
        self.active = True
        self._scene = scene
        self._known: weakref.WeakKeyDictionary[AveragedModel, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._count = 0

    def watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def watched(average: AveragedModel, *args: Any, **kwargs: Any) -> Any:
            if self.active and not self._scene.recorder.silent:
                self._enter(average)
            return forward(average, *args, **kwargs)

        return untraced(watched)

    def _enter(self, average: AveragedModel) -> None:
        """Record the average, once a step: an evaluation uses it for many batches."""
        step = self._scene.recorder.step
        known = self._known.get(average)
        if known is None:
            known = (self._count, -1)
            self._count += 1
        if known[1] == step:
            return
        self._known[average] = (known[0], step)
        managed = self._managed()
        rows = []
        for slot in parameter_slots(average.module, ""):
            spec, digest = observation(slot.owner[slot.key])
            name = slot.name.removeprefix("module.")
            equal = (name, spec.text) in managed
            text = spec.replicated if equal else spec.text
            rows.append((step, "buffer", f"AveragedModel[{known[0]}].{name}", text, digest, None))
        self._scene.recorder.add_rows(rows)

    def _managed(self) -> set[tuple[str, str]]:
        """Return names and specs of what DDP keeps equal on all ranks: the average of that is equal as well."""
        return {
            (slot.name.removeprefix(replica.prefix), spec_of(parameter))
            for replica in self._scene.replicas
            for slot, parameter, managed in replica.parameters
            if managed
        }
