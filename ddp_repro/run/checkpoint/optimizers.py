"""Optimizers by the names of their parameters: state and hyper-parameters, exactly as they are.

``Optimizer.load_state_dict`` goes by position and casts state to the parameter's dtype, so it is not used.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.bits import copy_bits
from ddp_repro.run.checkpoint.snapshot import Snapshot

log = logging.getLogger(__name__)

Names = Mapping[int, str]
"""Names of parameters by their identities."""


def _zero() -> Any:
    """Return the class ``ZeroRedundancyOptimizer``, ``None`` where nobody imported it (it loads a compiler)."""
    return getattr(sys.modules.get("torch.distributed.optim"), "ZeroRedundancyOptimizer", None)


def save_optimizer(snapshot: Snapshot, optimizer: Optimizer, names: Names, section: str) -> dict[str, Any]:
    """Return the document of an optimizer; of a ``ZeroRedundancyOptimizer`` its state is this rank's share.

    Raises ``ReproError`` for a parameter that no model holds, and for an optimizer with a form of state of its own.
    """
    check_kind(optimizer)
    own = _stepped(optimizer)
    state = {_name(parameter, names): entry for parameter, entry in _parameter_states(own)}
    left_out_before = len(snapshot.left_out)
    document: dict[str, Any] = {
        "type": kind_of(optimizer),
        "groups": [
            {
                "params": [_name(parameter, names) for parameter in group["params"]],
                "settings": snapshot.encode(_settings(group), f"{section}/group{index}", leave_objects=True),
            }
            for index, group in enumerate(optimizer.param_groups)
        ],
        "state": {
            name: snapshot.encode(entry, f"{section}/{name}", leave_objects=True) for name, entry in state.items()
        },
        "loose": snapshot.encode(
            {key: entry for key, entry in own.state.items() if not isinstance(key, torch.Tensor)},
            f"{section}/state",
            leave_objects=True,
        ),
    }
    document["left_out"] = snapshot.left_out[left_out_before:]
    return document


def check_kind(optimizer: Any) -> None:
    """Raise ``ReproError`` for what is no torch optimizer, or has a form of state that only itself knows."""
    if not isinstance(optimizer, Optimizer):
        raise ReproError(
            f"optimizer is a {type(optimizer).__name__}, which is no torch.optim.Optimizer",
            hint="give the optimizer within it, or save it in extra by its state_dict",
        )
    known_forms = (Optimizer, _zero() or Optimizer)
    if all(type(optimizer).state_dict is not known.state_dict for known in known_forms):
        raise ReproError(
            f"{type(optimizer).__name__} has a state_dict of its own, so its state is not in its groups alone",
            hint="give the optimizer within it, or save it in extra by its state_dict",
        )
    if getattr(optimizer, "_overlap_with_ddp", False):
        raise ReproError("ZeroRedundancyOptimizer with overlap_with_ddp cannot be saved", hint="leave the option out")


def kind_of(optimizer: Optimizer) -> str:
    """Return the class of an optimizer, and of the one within."""
    own = _stepped(optimizer)
    within = "" if own is optimizer else f"({type(own).__name__})"
    return f"{type(optimizer).__name__}{within}"


def _stepped(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer that holds the state: the one within a ``ZeroRedundancyOptimizer``."""
    is_zero = _zero() is not None and isinstance(optimizer, _zero())
    return optimizer.optim if is_zero else optimizer  # type: ignore[attr-defined]


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    # Names that a user gave (``named_parameters()``) are no setting.
    return {key: value for key, value in group.items() if key not in {"params", "param_names"}}


def _name(parameter: torch.Tensor, names: Names) -> str:
    if id(parameter) not in names:
        raise ReproError(
            f"the optimizer steps a parameter of shape {list(parameter.shape)} that no model holds",
            hint="give every model that is trained: model={'net': net, 'head': head}",
        )
    return names[id(parameter)]


def _parameter_states(optimizer: Optimizer) -> Iterator[tuple[torch.Tensor, Any]]:
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for key, entry in optimizer.state.items():
        if isinstance(key, torch.Tensor):
            if id(key) in stepped:
                yield key, entry
            else:
                log.warning("state of a parameter that is in no group of the optimizer is not saved")


def optimizer_misfits(
    document: Mapping[str, Any], optimizer: Optimizer, names: Names, title: str
) -> list[tuple[str, str]]:
    """Return what of a saved document does not fit the optimizer here; empty where all of it does.

    Each misfit has the name by which it can be allowed, ``""`` where it cannot, and is told in words.
    """
    check_kind(optimizer)
    found = _parameter_misfits(document, optimizer, names, title)
    if found:
        return [("", problem) for problem in found]
    unknown = [
        (f"{title}.group{number}.{key}", f"the checkpoint has no {key} of group {number} of the {title}")
        for group, number in _matched(document, optimizer, names)
        for key in _settings(group)
        if key not in document["groups"][number]["settings"] and key not in _left_out(document)
    ]
    return [(field, f"{problem} (allow=['{field}'] leaves it as it is)") for field, problem in unknown]


def _parameter_misfits(document: Mapping[str, Any], optimizer: Optimizer, names: Names, title: str) -> list[str]:
    if document["type"] != kind_of(optimizer):
        return [f"{title} is a {kind_of(optimizer)} here and a {document['type']} in the checkpoint"]
    here = [{_name(parameter, names) for parameter in group["params"]} for group in optimizer.param_groups]
    saved = [set(group["params"]) for group in document["groups"]]
    steps_here, steps_saved = set().union(*here), set().union(*saved)
    found = [f"{title} steps {name} here and not in the checkpoint" for name in sorted(steps_here - steps_saved)]
    found += [f"{title} stepped {name} in the checkpoint and not here" for name in sorted(steps_saved - steps_here)]
    if not found and sorted(map(sorted, here)) != sorted(map(sorted, saved)):
        found.append(f"the groups of the {title} hold other parameters here than in the checkpoint")
    own = {_name(parameter, names) for group in _stepped(optimizer).param_groups for parameter in group["params"]}
    elsewhere = sorted(set(document["state"]) & steps_here - own)
    return found + [f"{title} has the state of {name} on another rank" for name in elsewhere]


def _left_out(document: Mapping[str, Any]) -> set[str]:
    return {place.rpartition(".")[2] for place in document["left_out"]}


def _matched(document: Mapping[str, Any], optimizer: Optimizer, names: Names) -> list[tuple[dict[str, Any], int]]:
    """Return each group of the optimizer with the number of the saved group that holds the same parameters."""
    free = list(range(len(document["groups"])))
    matched = []
    for group in optimizer.param_groups:
        held = sorted(_name(parameter, names) for parameter in group["params"])
        number = next(number for number in free if sorted(document["groups"][number]["params"]) == held)
        free.remove(number)
        matched.append((group, number))
    return matched


def restore_optimizer(
    document: Mapping[str, Any], optimizer: Optimizer, names: Names, decode: Callable[[Any], Any]
) -> None:
    """Put state and hyper-parameters back: nothing of what was there stays, no dtype is cast."""
    own = _stepped(optimizer)
    matched = _matched(document, optimizer, names)
    for place, (group, number) in enumerate(matched):
        settings = decode(document["groups"][number]["settings"])
        _set(group, settings)
        if own is not optimizer:
            _set(own.param_groups[place], settings)
    own.state.clear()
    parameters = {names[id(one)]: one for group in own.param_groups for one in group["params"]}
    for name, entry in document["state"].items():
        own.state[parameters[name]] = decode(entry)
    own.state.update(decode(document["loose"]))


def _set(group: dict[str, Any], settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        held = group.get(key)
        if isinstance(held, torch.Tensor) and _is_like(value, held):
            copy_bits(value, held)  # compiled steps hold on to the tensor
        else:
            group[key] = value


def _is_like(value: Any, held: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and (held.dtype, held.shape) == (value.dtype, value.shape)
