"""What is known of an operator from its schema: what it reads, what it writes, and whether there is anything to see."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

_COLLECTIVE: Final = frozenset({"c10d", "_c10d_functional", "c10d_functional"})
_FUNCTIONAL: Final = frozenset({"_c10d_functional", "c10d_functional"})
_UNSEEN: Final = frozenset({"profiler", "prim"})
_UNINITIALISED: Final = ("empty", "new_empty", "_empty", "resize", "_resize", "set_")
"""What the memory of a new tensor happens to hold is no result of an operator."""
_OVERWRITING: Final = frozenset({"copy_", "fill_", "zero_"})
"""What these find in the tensor that they fill is no input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """How calls of one operator are observed.

    ``is_seen`` is false for what computes nothing: views, new memory, marks of a profiler. ``written`` are the
    arguments that it writes to, by place and name, ``unread`` those of them whose content it does not look at.
    ``is_collective`` tells that its output is complete only later, ``waits`` that its input is complete only after it.
    """

    title: str
    is_seen: bool
    is_collective: bool
    has_output: bool
    waits: bool
    draws: bool
    written: tuple[tuple[int, str], ...]
    unread: frozenset[int]


def plan_of(func: Any) -> OperatorPlan:
    """Return the plan of an ``OpOverload``."""
    schema, space = func._schema, func.namespace  # noqa: SLF001 -- the schema has no public name
    base = schema.name.partition("::")[2]
    arguments = list(enumerate(schema.arguments))
    written = tuple((at, one.name) for at, one in arguments if _writes(one))
    draws = torch.Tag.nondeterministic_seeded in func.tags
    overwrites = base in _OVERWRITING or (draws and base.endswith("_"))
    unread = {at for at, one in arguments if one.is_out} | ({0} if overwrites else set())
    is_view = not written and any(_aliases(one) for one in schema.returns)
    waits = base.startswith("wait_tensor")
    return OperatorPlan(
        title=func.name(),
        is_seen=space not in _UNSEEN and not is_view and not base.startswith(_UNINITIALISED),
        is_collective=space in _COLLECTIVE and not waits,
        has_output=space not in _FUNCTIONAL or waits,
        waits=waits,
        draws=draws,
        written=written,
        unread=frozenset(unread),
    )


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _aliases(result: Any) -> bool:
    return result.alias_info is not None and not result.alias_info.is_write


def inputs(plan: OperatorPlan, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Yield the tensors and plain values that a call reads, in order, out of lists too."""
    if plan.waits:
        return
    unread_names = {func._schema.arguments[at].name for at in plan.unread} if kwargs else ()  # noqa: SLF001
    for at, value in enumerate(args):
        if at not in plan.unread:
            yield from leaves(value)
    for name, value in kwargs.items():
        if name not in unread_names:
            yield from leaves(value)


def outputs(plan: OperatorPlan, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the tensors and plain values that a call made or wrote to, each once."""
    found = list(leaves(result))
    for at, name in plan.written:
        found.extend(leaves(args[at] if at < len(args) else kwargs.get(name)))
    if plan.is_collective:
        found.extend(leaf for value in args for leaf in leaves(value) if isinstance(leaf, torch.Tensor))
    unique = {id(one): one for one in found if one is not None and not isinstance(one, torch.ScriptObject)}
    return list(unique.values())


def leaves(value: Any) -> Iterator[Any]:
    """Yield what lists and tuples hold, or the value itself."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves(part)
    else:
        yield value
