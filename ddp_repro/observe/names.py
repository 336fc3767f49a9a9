"""Names of parameters and buffers: qualified, without what wrappers put in between, found by identity."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from ddp_repro.observe.census import living

_WRAPPERS: Final = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""Attributes that torch.compile, activation checkpointing and FSDP put into a qualified name."""

_AROUND: Final = (nn.DataParallel, nn.parallel.DistributedDataParallel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place in a module where a parameter or buffer hangs: ``owner[key]``, known as ``name``."""

    owner: dict[str, Any]
    key: str
    name: str
    qualified: str


def plain_name(qualified: str) -> str:
    """Return a qualified name without the attributes of wrappers."""
    if "_" not in qualified:
        return qualified
    return ".".join(part for part in qualified.split(".") if part not in _WRAPPERS)


def parameter_slots(module: nn.Module, prefix: str) -> list[Slot]:
    """Return the slots of all parameters under ``module``; one that hangs in several places has the first."""
    return list(_slots(module, "_parameters", prefix))


def buffer_slots(module: nn.Module, prefix: str) -> list[Slot]:
    """Return the slots of all buffers under ``module``; one that hangs in several places has the first."""
    return list(_slots(module, "_buffers", prefix))


def _slots(module: nn.Module, kind: str, prefix: str) -> Iterator[Slot]:
    seen: set[int] = set()
    for path, child in module.named_modules():
        owner: dict[str, Any] = vars(child)[kind]
        for key, tensor in owner.items():
            if tensor is None or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            qualified = f"{path}.{key}" if path else key
            yield Slot(owner=owner, key=key, name=prefix + plain_name(qualified), qualified=qualified)


class Names:
    """Qualified names of parameters by identity, for as long as a parameter lives."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}

    def learn(self, parameter: torch.Tensor, name: str) -> None:
        """Remember the name of a parameter."""
        self._known[id(parameter)] = (weakref.ref(parameter), name)

    def get(self, parameter: torch.Tensor) -> str | None:
        """Return the name of a parameter, or ``None`` where it is not known."""
        known = self._known.get(id(parameter))
        return known[1] if known is not None and known[0]() is parameter else None

    def learn_from_modules(self, parameters: list[torch.Tensor]) -> list[tuple[nn.Module, str]]:
        """Find the modules of this process that hold those of ``parameters`` whose names are not known, and learn them.

        A second module whose parameters have the names of the first gets the prefix ``model1.``, and so on. Returns
        the modules whose parameters were learned, each with the prefix of its names.
        """
        unknown = [parameter for parameter in parameters if self.get(parameter) is None]
        wanted = set(map(id, unknown))
        learned = []
        for module, slots in modules_holding(unknown):
            prefix = self._prefix(slots)
            learned.append((module, prefix))
            for slot in slots:
                if id(slot.owner[slot.key]) in wanted:
                    wanted.discard(id(slot.owner[slot.key]))
                    self.learn(slot.owner[slot.key], prefix + slot.name)
        return learned

    def _prefix(self, slots: list[Slot]) -> str:
        """Return the prefix of a module's names: the one that it has already, else one that makes them new."""
        for slot in slots:
            known = self.get(slot.owner[slot.key])
            if known is not None and known.endswith(slot.name):
                return known.removesuffix(slot.name)
        taken = {name for reference, name in self._known.values() if reference() is not None}
        prefix, index = "", 0
        while any(prefix + slot.name in taken for slot in slots):
            index += 1
            prefix = f"model{index}."
        return prefix


def modules_holding(parameters: list[torch.Tensor]) -> list[tuple[nn.Module, list[Slot]]]:
    """Return the modules of this process that are in no other one and hold ``parameters``, with their slots.

    The largest comes first, and those of one size in the order of the parameters; a module whose parameters a larger
    one holds as well is left out, and so is a wrapper around a module.
    """
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    found = []
    for module in map(unwrapped, root_modules() if parameters else []):
        slots = parameter_slots(module, "")
        held = [places[id(slot.owner[slot.key])] for slot in slots if id(slot.owner[slot.key]) in places]
        if held:
            found.append((-len(slots), min(held), [slot.name for slot in slots], module, slots))
    found.sort(key=lambda one: one[:3])  # never by where the garbage collector has them
    wanted, holding = set(places), []
    for *_, module, slots in found:
        mine = {id(slot.owner[slot.key]) for slot in slots}
        if mine & wanted:
            holding.append((module, slots))
            wanted -= mine
    return holding


def unwrapped(module: nn.Module) -> nn.Module:
    """Return what a wrapper around a whole model holds; another module as it is."""
    inside: nn.Module | None = module
    while inside is not None:
        module, parts = inside, vars(inside)["_modules"]
        inside = parts.get("module") if isinstance(module, _AROUND) else parts.get("_orig_mod")
    return module


def root_modules() -> list[nn.Module]:
    """Return the modules of this process that hang in no other."""
    modules = [module for module in living(nn.Module) if "_modules" in vars(module)]
    children = {id(child) for module in modules for child in vars(module)["_modules"].values()}
    return [module for module in modules if id(module) not in children]
