"""The same training computed in another way: the form of the optimizer's step, and DDP's communication hook."""

from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_repro.config import Hook, OptimizerForm
from ddp_repro.errors import ReproError

_HOOKS: dict[Hook, Any] = {
    Hook.allreduce: default_hooks.allreduce_hook,
    Hook.fp16_compress: default_hooks.fp16_compress_hook,
}


def in_form(optimizer: Optimizer, form: OptimizerForm | None) -> Optimizer:
    """Have an optimizer that has not stepped yet compute its steps in ``form``; ``None`` leaves it as it is.

    Raises ``ReproError`` where it does not have that form.
    """
    if form is None:
        return optimizer
    chosen = {"foreach": form is OptimizerForm.foreach, "fused": form is OptimizerForm.fused}
    for group in optimizer.param_groups:
        missing = [key for key, is_on in chosen.items() if is_on and key not in group]
        if missing:
            raise ReproError(
                f"train.optimizer={form.value}: {type(optimizer).__name__} has no {missing[0]} form.",
                hint="Leave train.optimizer out.",
            )
        group.update({key: is_on for key, is_on in chosen.items() if key in group})
    return optimizer


def register_hook(ddp: DistributedDataParallel, hook: Hook) -> None:
    """Have DDP reduce its gradients by one of its stock hooks."""
    ddp.register_comm_hook(None, _HOOKS[hook])
