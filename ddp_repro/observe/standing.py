"""Whether a tensor must be equal on all ranks, as its spec says it."""

import sys
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist


class Standing(IntEnum):
    """What a tensor is among ranks: the place in ``Spec.texts`` of the text that says so."""

    OWN = 0
    """This rank's own: it may differ."""
    REPLICATED = 1
    """DDP, or a placement, holds it equal on all ranks."""
    UNMANAGED = 2
    """Nobody says: where all ranks begin with the same, it is taken for replicated by hand."""


def several_ranks() -> bool:
    """Tell whether this process is one of several in a process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_distributed(tensor: torch.Tensor) -> bool:
    """Tell whether ``tensor`` is a ``DTensor``, which has a placement."""
    distributed: Any = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(tensor, distributed.DTensor)


def standing_alone(tensor: torch.Tensor) -> Standing:
    """Return what ``tensor`` is among ranks where no DDP manages it."""
    if not several_ranks():
        return Standing.OWN
    if not is_distributed(tensor):
        return Standing.UNMANAGED
    placed: Any = tensor
    whole = all(placement.is_replicate() for placement in placed.placements)
    return Standing.REPLICATED if whole and placed.device_mesh.size() == dist.get_world_size() else Standing.OWN
