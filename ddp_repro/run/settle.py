"""Has DDP lay out its gradient buckets as in the middle of a training, before any state is loaded.

DDP reduces its first backward in the order in which parameters were registered, and lays its buckets out anew
afterwards, in the order in which gradients got ready. With three ranks or more the first layout adds in another order,
so a process that resumes is off by last bits in its first reduced gradient, though every saved byte is right.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.errors import ReproError
from ddp_repro.observe.recorder import paused
from ddp_repro.observe.torch_internals import passes_before_rebuilt
from ddp_repro.run.standstill import standstill


def settle_buckets(
    ddp_model: torch.nn.Module, example_batch: Any, *, loss: Callable[[Any], torch.Tensor] | None = None
) -> int:
    """Run the forwards and backwards after which DDP's buckets no longer change, and discard what they give.

    Call it on every rank, before the checkpoint is loaded, with a batch like those of the training: a tuple holds the
    model's positional arguments, a mapping its keyword arguments, anything else is its one argument. ``loss`` makes a
    scalar of the model's output; by default it is the sum of all floating tensors in it.

    Returns the number of passes made: one, two with ``static_graph=True``, none where unused parameters are looked for
    or the buckets are settled already. Parameters, buffers, gradients, random states, and the states of communication
    hooks are left as they were; no recorder observes it. Raises ``ReproError`` for a model that is not under DDP, a
    loss without a gradient for some parameter, and a forward or backward that writes to parameters.
    """
    return settle_by(ddp_model, lambda: (loss or _sum_of)(_called(ddp_model, example_batch)))


def settle_by(ddp_model: torch.nn.Module, forward: Callable[[], torch.Tensor]) -> int:
    """Do as ``settle_buckets`` does, with a ``forward`` that calls ``ddp_model`` and returns a scalar loss."""
    ddp = getattr(ddp_model, "_orig_mod", ddp_model)
    if not isinstance(ddp, DistributedDataParallel):
        raise ReproError(
            f"settle_buckets got a {type(ddp).__name__}, and only DistributedDataParallel has buckets to settle",
            hint="give it the model that DDP returned, or leave the call out",
        )
    passes = passes_before_rebuilt(ddp)
    for _ in range(passes):
        with paused(), _synchronising(ddp), standstill(ddp):
            _pass(ddp, forward)
    return passes


def _pass(ddp: DistributedDataParallel, forward: Callable[[], torch.Tensor]) -> None:
    parameters = [(name, parameter) for name, parameter in ddp.module.named_parameters() if parameter.requires_grad]
    for _, parameter in parameters:
        parameter.grad = None
    with torch.inference_mode(mode=False), torch.enable_grad():
        torch.autograd.backward(forward())
    left_out = [
        name for name, parameter in parameters if parameter.grad is None and name not in ddp.parameters_to_ignore
    ]
    if left_out and not ddp.static_graph:
        raise ReproError(
            f"the discarded backward gives no gradient to {', '.join(left_out[:5])}",
            hint="give settle_buckets the loss that you train with: settle_buckets(model, batch, loss=…)",
        )


@contextlib.contextmanager
def _synchronising(ddp: DistributedDataParallel) -> Iterator[None]:
    """Have the backward reduce, also within ``no_sync``."""
    before = ddp.require_backward_grad_sync
    ddp.require_backward_grad_sync = True
    try:
        yield
    finally:
        ddp.require_backward_grad_sync = before


def _called(model: torch.nn.Module, batch: Any) -> Any:
    if isinstance(batch, tuple):
        return model(*batch)
    return model(**batch) if isinstance(batch, Mapping) else model(batch)


def _sum_of(output: Any) -> torch.Tensor:
    parts = [torch.view_as_real(part) if part.is_complex() else part for part in _tensors_in(output)]
    if not parts:
        raise ReproError(
            "the model's output holds no floating tensor with a gradient",
            hint="give settle_buckets the loss that you train with: settle_buckets(model, batch, loss=…)",
        )
    total = parts[0].float().sum()
    for part in parts[1:]:
        total = total + part.float().sum()
    return total


def _tensors_in(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
    elif isinstance(output, Mapping):
        for part in output.values():
            yield from _tensors_in(part)
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from _tensors_in(part)
    elif hasattr(output, "__dataclass_fields__"):
        for name in output.__dataclass_fields__:
            yield from _tensors_in(getattr(output, name))
