"""What is known of the modules that DDP replicates: their slots, what DDP manages, when it synchronises."""

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from ddp_repro.observe import torch_internals
from ddp_repro.observe.digest import bytes_digest, observation
from ddp_repro.observe.names import Names, Slot, buffer_slots, parameter_slots
from ddp_repro.observe.recorder import BEFORE_THE_FIRST_STEP, Recorder

LAYOUT_SPEC: Final = "layout"


class Replica:
    """One module under DDP, and the hooks on it.

    Holds neither the DDP object nor the module (a wrapper that is still alive when its process group ends can hang),
    and no hook holds a ``Replica``, so that parameters and hooks keep no cycle alive.
    """

    def __init__(self, ddp: DistributedDataParallel, prefix: str) -> None:
        self.ddp = weakref.ref(ddp)
        self.module = weakref.ref(ddp.module)
        self.prefix = prefix
        self.ignored = torch_internals.ignored_names(ddp)
        self.synchronises = True
        """Whether the next backward is meant to reduce: not after a forward in ``no_sync``."""
        self.touched: set[str] = set()
        """Names of the parameters that got gradients in the backward that is under way."""
        self.entered = False
        """Whether its forward ran since the last step."""
        self._layout: tuple[bool, bytes] | None = None
        self._handles: list[RemovableHandle] = []
        self._hooked: dict[int, torch.Tensor] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look at the module anew: parameters and buffers may have been added or put elsewhere."""
        module = self.module()
        assert module is not None, "a replica outlives its module"
        self.parameters = [
            (slot, slot.owner[slot.key], self.manages(slot)) for slot in parameter_slots(module, self.prefix)
        ]
        self.buffers = [(slot, self.manages(slot)) for slot in buffer_slots(module, self.prefix)]

    def manages(self, slot: Slot) -> bool:
        """Tell whether DDP manages what hangs in ``slot``, so that it must be equal on all ranks."""
        return slot.qualified not in self.ignored

    def is_current(self) -> bool:
        """Tell whether the parameters that are known still hang where they did."""
        return all(slot.owner.get(slot.key) is parameter for slot, parameter, _ in self.parameters)

    def hook_parameters(self, recorder: Recorder, names: Names) -> None:
        """Put a hook on each parameter that takes a gradient and has none yet; learn its name."""
        for slot, parameter, _ in self.parameters:
            if id(parameter) in self._hooked or not parameter.requires_grad:
                continue
            self._hooked[id(parameter)] = parameter
            names.learn(parameter, slot.name)
            hook = local_gradient_hook(recorder, slot.name, self.touched)
            self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def keep_up(self, recorder: Recorder, names: Names) -> None:
        """Follow the module where parameters were replaced, added or unfrozen."""
        if not self.is_current() and self.module() is not None:
            self.refresh()
        if self.has_unhooked():
            self.hook_parameters(recorder, names)

    def has_unhooked(self) -> bool:
        """Tell whether a parameter takes gradients now that did not when it was looked at."""
        hooked = self._hooked
        return any(parameter.requires_grad and id(parameter) not in hooked for _, parameter, _ in self.parameters)

    def release(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._hooked.clear()

    def layout_digest(self, ddp: DistributedDataParallel) -> bytes:
        """Return the digest (16 bytes) of the layout of DDP's buckets, which changes when they are rebuilt."""
        rebuilt = torch_internals.buckets_were_rebuilt(ddp)
        if self._layout is None or self._layout[0] is not rebuilt:
            self._layout = (rebuilt, bytes_digest(torch_internals.bucket_layout(ddp).encode(), LAYOUT_SPEC))
        return self._layout[1]

    def record_initial(self, recorder: Recorder) -> None:
        """Record parameters and buffers as DDP left them when it was built."""
        first = len(recorder.rows)
        for slot, parameter, managed in self.parameters:
            recorder.add("init", slot.name, parameter, replicated=managed)
        self.record_buffers(recorder, phase="init", replicated=True)
        if recorder.step == 0:
            recorder.rows[first:] = [(BEFORE_THE_FIRST_STEP, *row[1:]) for row in recorder.rows[first:]]

    def record_buffers(self, recorder: Recorder, *, phase: str = "buffer", replicated: bool) -> None:
        """Record the buffers that are there; those that DDP ignores are never called replicated."""
        step, rows = recorder.step, recorder.rows
        for slot, managed in self.buffers:
            buffer = slot.owner.get(slot.key)
            if buffer is not None:
                spec, digest = observation(buffer)
                rows.append(
                    (step, phase, slot.name, spec.replicated if replicated and managed else spec.text, digest, None)
                )


def local_gradient_hook(recorder: Recorder, name: str, touched: set[str]) -> Callable[[torch.Tensor], None]:
    """Return a hook for after accumulation, which records the gradient under ``name`` and adds that to ``touched``."""
    rows = recorder.rows  # the same list for the recorder's whole life

    def hook(parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None and not recorder.silent:
            touched.add(name)
            spec, digest = observation(gradient)
            rows.append((recorder.step, "grad_local", name, spec.text, digest, None))

    return hook


class Replicas:
    """All modules under DDP in this process, from the construction of the wrapper to its end."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._alive: dict[int, Replica] = {}
        self._gone: dict[int, weakref.ref[DistributedDataParallel]] = {}
        self._known_modules: list[weakref.ref[nn.Module]] = []
        self.version = 0
        """Changes whenever a replica comes or goes."""

    def __iter__(self) -> Any:
        """Iterate over the replicas in the order in which they were wrapped."""
        return iter(list(self._alive.values()))

    def parameter_ids(self) -> set[int]:
        """Return the identities of all parameters under DDP, those that it ignores among them."""
        return {id(parameter) for replica in self for _, parameter, _ in replica.parameters}

    def managed_ids(self) -> set[int]:
        """Return the identities of the parameters that DDP keeps equal on all ranks."""
        return {id(parameter) for replica in self for _, parameter, managed in replica.parameters if managed}

    def buffer_ids(self) -> set[int]:
        """Return the identities of all buffers under DDP."""
        return {id(slot.owner.get(slot.key)) for replica in self for slot, _ in replica.buffers}

    def get(self, ddp: DistributedDataParallel) -> Replica | None:
        """Return what is known of ``ddp``."""
        return self._alive.get(id(ddp))

    def knows(self, ddp: DistributedDataParallel) -> bool:
        """Tell whether ``ddp`` is known already."""
        return id(ddp) in self._alive

    def add(self, ddp: DistributedDataParallel) -> Replica:
        """Take note of a DDP object that has just been built, until it is gone."""
        key = id(ddp)
        replica = Replica(ddp, self._prefix(ddp.module))
        self._alive[key] = replica
        self.version += 1
        self._gone[key] = weakref.ref(ddp, lambda _: self._drop(key))
        for slot, parameter, _ in replica.parameters:
            self.names.learn(parameter, slot.name)
        return replica

    def release(self) -> None:
        """Take all hooks off all replicas."""
        for key in list(self._alive):
            self._drop(key)

    def _drop(self, key: int) -> None:
        self._gone.pop(key, None)
        replica = self._alive.pop(key, None)
        if replica is not None:
            self.version += 1
            replica.release()

    def _prefix(self, module: nn.Module) -> str:
        known = [reference() for reference in self._known_modules]
        index = next((index for index, other in enumerate(known) if other is module), len(known))
        if index == len(known):
            self._known_modules.append(weakref.ref(module))
        return "" if index == 0 else f"model{index}."
