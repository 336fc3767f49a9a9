"""A model's parameters and buffers by name: what is saved of them, whether a checkpoint fits, putting them back."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ddp_repro.errors import ReproError
from ddp_repro.observe.names import plain_name
from ddp_repro.run.checkpoint.bits import copy_bits, overlaps_itself
from ddp_repro.run.checkpoint.sharded import gather_up, is_sharded
from ddp_repro.run.checkpoint.snapshot import Snapshot, describe, problem_of

log = logging.getLogger(__name__)

Models = nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module]
Tensors = Callable[[Mapping[str, Any]], torch.Tensor]
"""Returns the saved tensor that an object of the document stands for."""

_KINDS: Final = ("_parameters", "_buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Where the tensors of one or several models hang.

    ``held``: module, its dictionary (``_parameters`` or ``_buffers``) and the key in it, by name; a tensor that hangs
    in several places is there once, and ``tied`` has the name of the first place by those of the others.
    """

    held: Mapping[str, tuple[nn.Module, str, str]]
    tied: Mapping[str, str]
    modules: Mapping[str, nn.Module]

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor that hangs at ``name`` now."""
        module, kind, key = self.held[name]
        tensor: torch.Tensor = vars(module)[kind][key]
        return tensor

    def frozen(self) -> list[str]:
        """Return the names of the parameters that take no gradient."""
        kinds = {name: kind for name, (_, kind, _) in self.held.items()}
        return [name for name in kinds if kinds[name] == "_parameters" and not self.tensor(name).requires_grad]

    def names_by_identity(self) -> dict[int, str]:
        """Return the names of all parameters by their identities."""
        return {id(self.tensor(name)): name for name, (_, kind, _) in self.held.items() if kind == "_parameters"}


def named(things: Any, noun: str) -> dict[str, Any]:
    """Return one thing, or several in a mapping or a sequence, by name; one alone has the name ``""``."""
    if things is None:
        return {}
    if isinstance(things, Mapping) and not isinstance(things, nn.Module):
        if not all(isinstance(name, str) and name for name in things):
            raise ReproError(f"{noun} is a mapping with keys that are no names", hint="use texts that are not empty")
        return dict(things)
    if isinstance(things, (list, tuple)):
        return {str(index): thing for index, thing in enumerate(things)}
    return {"": things}


def slots_of(models: Models) -> Slots:
    """Return where the tensors of ``models`` hang, under DDP, compilers and wrappers."""
    held: dict[str, tuple[nn.Module, str, str]] = {}
    tied: dict[str, str] = {}
    modules: dict[str, nn.Module] = {}
    first: dict[int, str] = {}
    for prefix, model in named(models, "model").items():
        inner = unwrapped(model)
        gather_up(inner)
        for path, child in inner.named_modules():
            modules[_joined(prefix, plain_name(path))] = child
            for kind, key, tensor in _own(child):
                name = _joined(prefix, plain_name(f"{path}.{key}" if path else key))
                if id(tensor) in first:
                    tied[name] = first[id(tensor)]
                else:
                    first[id(tensor)] = name
                    held[name] = (child, kind, key)
    return Slots(held=held, tied=tied, modules=modules)


def unwrapped(model: Any) -> nn.Module:
    """Return the module within DDP and compilers' wrappers. Raises ``ReproError`` where ``model`` is none."""
    if not isinstance(model, nn.Module):
        raise ReproError(f"model is a {type(model).__name__}", hint="give a module, or a mapping or list of modules")
    if isinstance(model, (DistributedDataParallel, DataParallel)):
        return unwrapped(model.module)
    compiled = getattr(model, "_orig_mod", None)
    return unwrapped(compiled) if isinstance(compiled, nn.Module) else model


def _own(module: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    for kind in _KINDS:
        for key, tensor in vars(module)[kind].items():
            if tensor is not None:
                yield kind, key, tensor


def _joined(prefix: str, name: str) -> str:
    return ".".join(part for part in (prefix, name) if part)


def save_modules(snapshot: Snapshot, slots: Slots, section: str) -> dict[str, Any]:
    """Return the document of models: tensors by name (non-persistent buffers too), ties, modules' extra state."""
    return {
        "tensors": {name: snapshot.keep(f"{section}/{name}", slots.tensor(name)) for name in slots.held},
        "tied": dict(slots.tied),
        "frozen": slots.frozen(),
        "extra_state": {
            name: snapshot.encode(module.get_extra_state(), f"{section}/{name}._extra_state")
            for name, module in slots.modules.items()
            if _has_extra_state(module)
        },
    }


def _has_extra_state(module: nn.Module) -> bool:
    return type(module).get_extra_state is not nn.Module.get_extra_state


def misfits(document: Mapping[str, Any], slots: Slots, title: str) -> list[str]:
    """Return, in words, what of a saved document does not fit the models here; empty where all of it does."""
    saved, tied = document["tensors"], document["tied"]
    found = [f"{title} has no {name}" for name in saved if name not in slots.held and name not in slots.tied]
    for name, first in tied.items():
        if slots.tied.get(name) != first:
            found.append(f"{name} is tied to {first} in the checkpoint and not in the {title}")
    tied_here = [name for name in slots.tied if name in saved]
    found.extend(f"{name} is tied to {slots.tied[name]} in the {title} and not in the checkpoint" for name in tied_here)
    for name in slots.held:
        if name in tied:
            continue
        if name not in saved:
            found.append(f"the checkpoint has no {name} of the {title}")
        else:
            found.extend(_unlike(name, saved[name], slots.tensor(name)))
    here = {name for name, module in slots.modules.items() if _has_extra_state(module)}
    found.extend(
        f"the extra state of {name or title} is on one side only" for name in here ^ set(document["extra_state"])
    )
    return found


def _unlike(name: str, mark: Mapping[str, Any], tensor: torch.Tensor) -> list[str]:
    problem = "" if is_sharded(tensor) else problem_of(tensor)
    if problem:
        return [f"{name} {problem}"]
    here = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    if describe(here) != describe(mark):
        return [f"{name} is {describe(here)} here and {describe(mark)} in the checkpoint"]
    if is_sharded(tensor) != ("$sharded" in mark):
        return [f"{name} is {'sharded' if is_sharded(tensor) else 'whole'} here and not so in the checkpoint"]
    return []


def restore_modules(document: Mapping[str, Any], slots: Slots, tensors: Tensors, decode: Callable[[Any], Any]) -> None:
    """Write saved tensors into those of the models, in place, bit by bit; then modules' extra state."""
    for name in set(document["frozen"]) ^ set(slots.frozen()):
        log.warning(
            "%s is frozen %s", name, "in the checkpoint and not here" if name in document["frozen"] else "here alone"
        )
    for name, mark in document["tensors"].items():
        write_into(slots, name, tensors(mark))
    for name, state in document["extra_state"].items():
        slots.modules[name].set_extra_state(decode(state))


def write_into(slots: Slots, name: str, saved: Any) -> None:
    """Write ``saved`` into what hangs at ``name``; a buffer that cannot be written to is replaced."""
    tensor: Any = slots.tensor(name)
    if is_sharded(tensor):
        copy_bits(saved.to_local(), tensor.to_local())
    elif overlaps_itself(tensor):
        module, kind, key = slots.held[name]
        vars(module)[kind][key] = saved.detach().clone().to(tensor.device)
    else:
        copy_bits(saved, tensor)
