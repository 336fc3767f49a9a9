"""The whole numbers that a sampler or data set keeps among its attributes: the epoch is one of them."""

from typing import Any

import torch

Settings = dict[str, int]


def integers_of(thing: Any) -> Settings:
    """Return the attributes of ``thing`` that are integers, hold one in shared memory, or are a tensor of one."""
    found = ((name, _integer(value)) for name, value in list(getattr(thing, "__dict__", {}).items()))
    return {name: value for name, value in found if value is not None}


def is_shared(thing: Any, names: Settings) -> bool:
    """Tell whether all of the attributes ``names`` are in memory that workers share."""
    values = [vars(thing).get(name) for name in names]
    return bool(values) and all(
        value.is_shared() if isinstance(value, torch.Tensor) else not isinstance(value, int)  # type: ignore[no-untyped-call]
        for value in values
    )


def _integer(value: Any) -> int | None:
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    if isinstance(value, torch.Tensor):
        whole = value.numel() == 1 and not value.is_floating_point() and not value.is_complex() and value.is_cpu
        return int(value.item()) if whole else None
    held = getattr(value, "value", None) if type(value).__module__.startswith("multiprocessing") else None
    return held if isinstance(held, int) else None
