"""Work that is to leave no trace in a training: a model's state, gradients and the generators are put back after it."""

# ruff: noqa: SLF001 -- buffers as they hang in a module, and whether a parameter was written to, have no public name

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.errors import ReproError
from ddp_repro.observe.torch_internals import communication_hook_states
from ddp_repro.run.checkpoint.bits import copy_bits, overlaps_itself, same_bits
from ddp_repro.run.checkpoint.generators import (
    generator_state,
    is_generator,
    process_states,
    restore_process_states,
    set_generator_state,
)

_PLAIN: Final = (bool, int, float, str, type(None))


@contextlib.contextmanager
def standstill(ddp: DistributedDataParallel) -> Iterator[None]:
    """Put back, on the way out, what a forward and a backward of ``ddp`` move.

    Gradients (``None`` stays ``None``), buffers, plain attributes of modules (counters), training or evaluation mode,
    random states, the states of communication hooks. Raises ``ReproError`` where parameters were written to.
    """
    versions = {name: (parameter, parameter._version) for name, parameter in ddp.module.named_parameters()}
    states = process_states()
    with contextlib.ExitStack() as stack:
        stack.callback(restore_process_states, states)
        stack.callback(torch.clear_autocast_cache)
        for parameter, _ in versions.values():
            stack.callback(_put_gradient_back, parameter, parameter.grad, _kept(parameter.grad))
        for module in ddp.module.modules():
            stack.callback(_put_attributes_back, module, _plain_attributes(module))
            stack.callback(_put_buffers_back, module, [(key, one, _kept(one)) for key, one in module._buffers.items()])
        for state in communication_hook_states(ddp):
            held = _attributes(state)
            stack.callback(_put_hook_state_back, state, {key: _copied(value) for key, value in held.items()})
            for generator in filter(is_generator, held.values()):
                stack.callback(set_generator_state, generator, generator_state(generator))
        yield
    written = [name for name, (parameter, version) in versions.items() if parameter._version != version]
    if written:
        raise ReproError(
            f"the discarded forward and backward wrote to parameters: {', '.join(written[:5])}",
            hint="settle the buckets before hooks that step the optimizer are registered, and load the state after it",
        )


def _kept(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _put_gradient_back(parameter: nn.Parameter, gradient: torch.Tensor | None, content: torch.Tensor | None) -> None:
    parameter.grad = gradient
    if gradient is not None and content is not None and gradient.layout is torch.strided:
        copy_bits(content, gradient)  # it may lie in a bucket that was reduced into


def _put_buffers_back(module: nn.Module, kept: list[tuple[str, torch.Tensor | None, torch.Tensor | None]]) -> None:
    for key in set(module._buffers) - {key for key, _, _ in kept}:
        del module._buffers[key]
    for key, buffer, content in kept:
        module._buffers[key] = buffer
        if buffer is None or content is None or buffer.layout is not torch.strided or overlaps_itself(buffer):
            continue
        if not same_bits(buffer, content):
            copy_bits(content, buffer)


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(module).items() if type(value) in _PLAIN}


def _put_attributes_back(module: nn.Module, attributes: dict[str, Any]) -> None:
    vars(module).update({key: value for key, value in attributes.items() if type(vars(module).get(key)) in _PLAIN})


def _attributes(state: Any) -> dict[str, Any]:
    """Return what an object of Python's holds, also where it is in slots (as PowerSGD's state is)."""
    names = {*getattr(state, "__dict__", ()), *(name for kind in type(state).__mro__ for name in _slots(kind))}
    return {name: getattr(state, name) for name in names if hasattr(state, name)}


def _slots(kind: type) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    return (
        (found,) if isinstance(found, str) else tuple(name for name in found if name not in {"__dict__", "__weakref__"})
    )


def _put_hook_state_back(state: Any, attributes: dict[str, Any]) -> None:
    for key in set(_attributes(state)) - set(attributes):
        delattr(state, key)
    for key, value in attributes.items():
        setattr(state, key, value)


def _copied(value: Any) -> Any:
    """Return a copy of containers and tensors down to what else there is, which is kept as it is."""
    if type(value) is torch.Tensor:
        return value.detach().clone()
    if type(value) is dict:
        return {key: _copied(part) for key, part in value.items()}
    if type(value) is list:
        return [_copied(part) for part in value]
    return value
