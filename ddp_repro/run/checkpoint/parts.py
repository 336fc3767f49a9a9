"""What is saved beside model and optimizer: schedulers, scalers, and whatever the training adds."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import nn
from torch.amp import GradScaler

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.generators import generator_state, is_generator, set_generator_state
from ddp_repro.run.checkpoint.modules import Tensors, misfits, restore_modules, save_modules, slots_of
from ddp_repro.run.checkpoint.snapshot import Snapshot

VALUE: Final = "value"
_STATE, _MODULE, _GENERATOR = "state", "module", "generator"


def kind_of(thing: Any) -> str:
    """Return how a thing is saved: by its tensors, its state_dict, its generator's state, or as a plain value."""
    if isinstance(thing, nn.Module):
        return _MODULE
    if is_generator(thing):
        return _GENERATOR
    stateful = callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))
    return _STATE if stateful else VALUE


def save_part(snapshot: Snapshot, thing: Any, section: str, *, leave_objects: bool = False) -> dict[str, Any]:
    """Return the document of one thing. Raises ``ReproError`` for one that cannot be saved without a pickle."""
    kind = kind_of(thing)
    head = {"kind": kind, "type": type(thing).__name__}
    if kind == _MODULE:
        return {**head, **save_modules(snapshot, slots_of(thing), section)}
    state = generator_state(thing) if kind == _GENERATOR else thing.state_dict() if kind == _STATE else thing
    return {**head, "state": snapshot.encode(state, section, leave_objects=leave_objects)}


def save_stateful(snapshot: Snapshot, thing: Any, section: str) -> dict[str, Any]:
    """Return the document of a scheduler or scaler; what in it is no state (a function) is left out and noted."""
    if kind_of(thing) != _STATE:
        raise ReproError(f"{section} is a {type(thing).__name__} without a state_dict", hint="give the object itself")
    return save_part(snapshot, thing, section, leave_objects=True)


def part_misfits(document: Mapping[str, Any], thing: Any, title: str) -> list[str]:
    """Return, in words, what of a saved document does not fit ``thing``; empty where all of it does."""
    kind = kind_of(thing)
    if kind != document["kind"]:
        return [f"{title} was saved as a {document['kind']} ({document['type']}) and a {type(thing).__name__} is given"]
    if kind == _MODULE:
        return misfits(document, slots_of(thing), title)
    if kind != VALUE and type(thing).__name__ != document["type"]:
        return [f"{title} is a {type(thing).__name__} here and a {document['type']} in the checkpoint"]
    if isinstance(thing, GradScaler) and thing.is_enabled() != bool(document["state"]):
        return [f"{title} is {'enabled' if thing.is_enabled() else 'disabled'} here and was not so in the checkpoint"]
    return []


def restore_part(document: Mapping[str, Any], thing: Any, tensors: Tensors, decode: Callable[[Any], Any]) -> None:
    """Put a saved state into ``thing``."""
    if document["kind"] == _MODULE:
        restore_modules(document, slots_of(thing), tensors, decode)
    elif document["kind"] == _GENERATOR:
        set_generator_state(thing, decode(document["state"]))
    elif document["kind"] == _STATE:
        thing.load_state_dict(decode(document["state"]))
