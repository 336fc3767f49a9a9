"""The parameters that are trained and that no DDP manages: in manual loops, under FSDP2, in one process alone."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ddp_repro.observe.digest import observation
from ddp_repro.observe.names import Names, Slot, buffer_slots, parameter_slots
from ddp_repro.observe.recorder import BEFORE_THE_FIRST_STEP, Recorder
from ddp_repro.observe.replicas import Replicas, local_gradient_hook
from ddp_repro.observe.standing import Standing, is_distributed, standing_alone


@dataclass(slots=True, kw_only=True)
class _Held:
    """A parameter that is watched, and the hook on it once it takes gradients."""

    parameter: weakref.ref[torch.Tensor]
    name: str
    handle: RemovableHandle | None = None


class Unmanaged:
    """Parameters of the optimizers of this process that hang in no module under DDP.

    Optimizers are often made before the model is wrapped, so they are only noted where they are made, and looked at as
    a backward or a step begins.
    """

    def __init__(self, recorder: Recorder, names: Names, replicas: Replicas) -> None:
        self._recorder = recorder
        self._names = names
        self._replicas = replicas
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, None] = weakref.WeakKeyDictionary()
        self._held: dict[int, _Held] = {}
        self._without_hook: list[_Held] = []
        self._roots: list[tuple[weakref.ref[nn.Module], str]] = []
        self._buffers: list[Slot] = []
        self._stale = False
        self._version = replicas.version

    def meet(self, optimizer: Optimizer) -> None:
        """Take note of an optimizer, or of a new group in one."""
        self._optimizers[optimizer] = None
        self._stale = True
        parameters = _parameters(optimizer)
        if any(map(is_distributed, parameters)):
            # Under FSDP2 the modules hold other tensors while a backward begins: the names have to be found now.
            self._learn(parameters)

    def look(self, optimizer: Optimizer | None = None) -> None:
        """Put hooks on what has come under an optimizer since the last look, and record it as it begins."""
        if optimizer is not None and optimizer not in self._optimizers:
            self.meet(optimizer)
        if self._stale or self._version != self._replicas.version:
            self._stale, self._version = False, self._replicas.version
            self._look_anew()
        elif self._without_hook:
            self._hook_unfrozen()

    def optimizers(self) -> list[Optimizer]:
        """Return the optimizers of this process, in the order in which they were met."""
        return list(self._optimizers)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield name and tensor of each parameter that an optimizer has and no DDP manages."""
        for held in self._held.values():
            parameter = held.parameter()
            if parameter is not None:
                yield held.name, parameter

    def optimized_ids(self) -> set[int]:
        """Return the identities of all parameters that an optimizer of this process has."""
        return {id(parameter) for optimizer in self._optimizers for parameter in _parameters(optimizer)}

    def record_buffers(self) -> None:
        """Record the buffers of the modules that hold such parameters, as the step leaves them."""
        self._record_slots("buffer", self._buffers)

    def release(self) -> None:
        """Take all hooks off."""
        for held in self._held.values():
            if held.handle is not None:
                held.handle.remove()
        self._held.clear()
        self._without_hook.clear()

    def _look_anew(self) -> None:
        managed = self._replicas.parameter_ids()
        for key, held in list(self._held.items()):
            if key in managed or held.parameter() is None:
                del self._held[key]
                if held.handle is not None:
                    held.handle.remove()
        new = [parameter for parameter in self._trained() if id(parameter) not in managed | self._held.keys()]
        if new:
            self._learn(new)
            self._hold(new, managed)
        self._without_hook = [held for held in self._held.values() if held.handle is None]
        self._hook_unfrozen()

    def _trained(self) -> list[torch.Tensor]:
        found = (parameter for optimizer in list(self._optimizers) for parameter in _parameters(optimizer))
        return list({id(parameter): parameter for parameter in found}.values())

    def _learn(self, parameters: list[torch.Tensor]) -> None:
        for module, prefix in self._names.learn_from_modules(parameters):
            self._roots.append((weakref.ref(module), prefix))
        for optimizer in list(self._optimizers):
            for place, parameter in _places(optimizer):
                if self._names.get(parameter) is None:
                    self._names.learn(parameter, place)

    def _hold(self, new: list[torch.Tensor], managed: set[int]) -> None:
        rows, first = self._recorder.rows, len(self._recorder.rows)
        for parameter in new:
            name = self._names.get(parameter) or ""
            self._held[id(parameter)] = _Held(parameter=weakref.ref(parameter), name=name)
            spec, digest = observation(parameter)
            rows.append((self._recorder.step, "init", name, spec.texts[standing_alone(parameter)], digest, None))
        told = {row[2] for row in rows[first:]}
        self._buffers = list(self._other_slots("_buffers", managed))
        parameters = [slot for slot in self._other_slots("_parameters", managed) if slot.name not in told]
        # A forward may have written to the buffers by now: no initial values of theirs are told.
        self._record_slots("init", parameters)
        if self._recorder.step == 0:
            rows[first:] = [(BEFORE_THE_FIRST_STEP, *row[1:]) for row in rows[first:]]

    def _other_slots(self, kind: str, managed: set[int]) -> Iterator[Slot]:
        """Yield the slots of the modules that hold such parameters, without what hangs under DDP."""
        under_ddp = managed | self._replicas.buffer_ids()
        for reference, prefix in self._roots:
            module = reference()
            if module is None:
                continue
            for slot in buffer_slots(module, prefix) if kind == "_buffers" else parameter_slots(module, prefix):
                if id(slot.owner[slot.key]) not in under_ddp:
                    yield slot

    def _record_slots(self, phase: str, slots: list[Slot]) -> None:
        step, rows = self._recorder.step, self._recorder.rows
        for slot in slots:
            tensor = slot.owner.get(slot.key)
            if tensor is not None:
                spec, digest = observation(tensor)
                standing = standing_alone(tensor) if phase == "init" else Standing.OWN
                rows.append((step, phase, slot.name, spec.texts[standing], digest, None))

    def _hook_unfrozen(self) -> None:
        waiting = []
        for held in self._without_hook:
            parameter = held.parameter()
            if parameter is None or is_distributed(parameter):
                continue  # a distributed one gets its gradient when it is reduced already
            if parameter.requires_grad and parameter.is_leaf:
                hook = local_gradient_hook(self._recorder, held.name, set())
                held.handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            else:
                waiting.append(held)
        self._without_hook = waiting


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for _, parameter in _places(optimizer)]


def _places(optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    for index, group in enumerate(getattr(optimizer, "param_groups", ())):
        for position, parameter in enumerate(group["params"]):
            yield f"group{index}.param{position}", parameter
