"""Whether a saved document fits what a training gives: every misfit by its name, found before anything is touched."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ddp_repro.run.checkpoint.modules import misfits, named, slots_of
from ddp_repro.run.checkpoint.optimizers import optimizer_misfits
from ddp_repro.run.checkpoint.parts import VALUE, kind_of, part_misfits

if TYPE_CHECKING:
    from ddp_repro.run.checkpoint.saving import Contents


def fit(document: Mapping[str, Any], contents: "Contents") -> Iterator[tuple[str, str]]:
    """Yield each misfit: the name by which it can be allowed, where it can, and what it is in words."""
    slots = slots_of(contents.model)
    yield from (("", problem) for problem in misfits(document["model"], slots, "model"))
    optimizers = named(contents.optimizer, "optimizer")
    yield from _strict_presence("optimizer", document["optimizer"], optimizers)
    names = slots.names_by_identity()
    for name, optimizer in optimizers.items():
        if name in document["optimizer"]:
            title = f"optimizer {name}".strip()
            yield from optimizer_misfits(document["optimizer"][name], optimizer, names, title)
    for noun, things in (("scheduler", contents.scheduler), ("scaler", contents.scaler), ("extra", contents.extra)):
        given = named(things, noun)
        yield from _presence(noun, document[noun], given)
        for name, thing in given.items():
            if name in document[noun]:
                title = f"{noun} {name}".strip()
                yield from (("", one) for one in part_misfits(document[noun][name], thing, title))


def _strict_presence(noun: str, saved: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from (("", problem) for _, problem in _presence(noun, saved, given))


def _presence(noun: str, saved: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is on one side only; plain values need not be given to be loaded."""
    for name, part in saved.items():
        if name not in given and part.get("kind") != VALUE:
            field = f"{noun}.{name}" if name else noun
            yield field, f"the checkpoint has a {field} and none is given (allow=['{field}'] does without it)"
    for name, thing in given.items():
        if name not in saved and (noun != "extra" or kind_of(thing) != VALUE):
            field = f"{noun}.{name}" if name else noun
            yield field, f"a {field} is given and the checkpoint has none (allow=['{field}'] leaves it as it is)"
