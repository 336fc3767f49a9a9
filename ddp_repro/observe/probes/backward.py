"""Around the backward: the loss before it, the reduced gradients after its outermost call."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ddp_repro.observe import torch_internals
from ddp_repro.observe.digest import observation
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.replicas import LAYOUT_SPEC, Replica
from ddp_repro.observe.scene import Scene


class _Depth:
    """How many backwards are under way in this process.

    Reentrant checkpointing calls ``backward`` within a backward, from a thread of autograd: a depth for each thread
    would take the inner one for an outermost.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0

    def enter(self) -> bool:
        """Count a backward that begins; tell whether it is the outermost."""
        with self._lock:
            self._depth += 1
            return self._depth == 1

    def leave(self) -> bool:
        """Count a backward that ends; tell whether it was the last."""
        with self._lock:
            self._depth -= 1
            return self._depth == 0


def attach(scene: Scene) -> Detach:
    """Watch every backward of this process, called as ``Tensor.backward`` or as ``torch.autograd.backward``."""
    active = [True]
    restore = replace_attribute(
        torch_internals.BACKWARD_OWNER,
        torch_internals.BACKWARD_NAME,
        lambda engine: _watched_engine(engine, scene, active),
    )

    def detach() -> None:
        active[0] = False
        restore()

    return detach


def _watched_engine(engine: Callable[..., Any], scene: Scene, active: list[bool]) -> Callable[..., Any]:
    depth = _Depth()

    @functools.wraps(engine)
    def watched(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if not (active[0] and kwargs.get("accumulate_grad", False)) or scene.recorder.silent:
            return engine(outputs, *args, **kwargs)
        if depth.enter():
            for replica in scene.replicas:
                if not replica.entered:  # its forward went past DDP, or ran in a compiled graph
                    replica.keep_up(scene.recorder, scene.names)
            scene.unmanaged.look()
            scene.boundary.reach()
            scene.backwards.count += 1
            _record_loss(scene.recorder, outputs)
        succeeded = False
        try:
            result = engine(outputs, *args, **kwargs)
            succeeded = True
        finally:
            if depth.leave():
                _finish(scene, succeeded=succeeded)
        return result

    return watched


def _record_loss(recorder: Recorder, outputs: Sequence[Any]) -> None:
    for loss in outputs:
        if isinstance(loss, torch.Tensor):
            spec, digest = observation(loss)
            value = float(loss.item()) if loss.numel() == 1 and not loss.is_complex() else None
            recorder.rows.append((recorder.step, "loss", "loss", spec.text, digest, value))


def _finish(scene: Scene, *, succeeded: bool) -> None:
    for replica in scene.replicas:
        if not replica.touched:
            continue
        replica.touched.clear()
        if succeeded and _synchronised(replica):
            _record_reduced(scene, replica)


def _synchronised(replica: Replica) -> bool:
    """Tell whether the backward reduced; a forward past DDP is not seen, so DDP is asked then."""
    ddp = replica.ddp()
    return replica.synchronises if replica.entered or ddp is None else bool(ddp.require_backward_grad_sync)


def _record_reduced(scene: Scene, replica: Replica) -> None:
    step, rows = scene.recorder.step, scene.recorder.rows
    for slot, parameter, managed in replica.parameters:
        gradient = parameter.grad
        if gradient is not None and managed:
            spec, digest = observation(gradient)
            rows.append((step, "grad_reduced", slot.name, spec.replicated, digest, None))
    ddp = replica.ddp()
    if ddp is not None and torch_internals.reduces_in_buckets(ddp):
        name, digest = f"{replica.prefix}bucket_layout", replica.layout_digest(ddp)
        rows.append((step, "grad_reduced", name, LAYOUT_SPEC, digest, None))
