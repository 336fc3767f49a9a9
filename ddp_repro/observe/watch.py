"""Attaches the probes to this process, and takes them off fully."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ddp_repro.errors import ReproError
from ddp_repro.observe.boundary import Wanted, no_boundary
from ddp_repro.observe.epoch_guard import MODES
from ddp_repro.observe.probes import (
    averages,
    backward,
    boundary,
    data,
    modules,
    operators,
    optimizer,
    optimizers,
    replicas,
    scaler,
)
from ddp_repro.observe.probes.steps import attach_counter
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.scene import new_scene
from ddp_repro.observe.torch_internals import verify_torch
from ddp_repro.observe.window import Window

_STEP: Final = (replicas, averages, optimizers, data, backward, optimizer, scaler, boundary)
_PROBES: Final = {"step": _STEP, "module": (*_STEP, modules), "op": (operators, *_STEP, modules)}


@contextmanager
def watch(
    recorder: Recorder,
    capture: str = "step",
    *,
    epoch_guard: str = "report",
    boundaries: Wanted = no_boundary,
    window: Window | None = None,
) -> Iterator[Recorder]:
    """Observe this process while the context lasts.

    ``capture`` is ``step``; ``module`` for modules' outputs too, or ``op`` for operators besides, both in the steps of
    ``window``; or ``off`` to count steps alone.

    ``epoch_guard`` tells what to do where a shuffling sampler or data set is trained on again without ``set_epoch``:
    ``report`` writes a row, ``error`` raises ``ReproError`` in the script, ``fix`` calls it and says so.

    ``boundaries`` tells before which steps all that a step starts from is recorded.

    Models, optimizers and loaders may be built before or within it. On the way out everything is as it was and what was
    recorded is with the writer. Raises ``ReproError`` for another level, or a torch that cannot be observed.
    """
    if capture not in {*_PROBES, "off"}:
        raise ReproError(f"capture={capture} is not known", hint=f"use one of {', '.join((*_PROBES, 'off'))}")
    if epoch_guard not in MODES:
        raise ReproError(f"epoch_guard={epoch_guard} is not known", hint=f"use one of {', '.join(MODES)}")
    try:
        with ExitStack() as attached:
            if capture == "off":
                attached.callback(attach_counter(recorder))
            else:
                verify_torch()
                scene = new_scene(recorder, epoch_guard, boundaries, window)
                for probe in _PROBES[capture]:
                    attached.callback(probe.attach(scene))
            yield recorder
    finally:
        recorder.flush()
