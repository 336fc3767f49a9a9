"""What the ranks of a world do together in a checkpoint: each its part, then all know how each of them fared.

What they tell each other is JSON, so that nothing is unpickled here either.
"""

import json
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_repro.errors import ReproError
from ddp_repro.run.placement import rank_and_world_size

log = logging.getLogger(__name__)


def place_in_world() -> tuple[int, int]:
    """Return (rank, world size). Raises ``ReproError`` for one of several ranks that has no process group."""
    if not (dist.is_available() and dist.is_initialized()) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ReproError(
            "this is one of several ranks, and there is no process group yet: a checkpoint takes all ranks",
            hint="call torch.distributed.init_process_group() first",
        )
    return rank_and_world_size()


def together(action: Callable[[], Any]) -> list[Any]:
    """Run ``action`` on this rank, as on all others, and return what it returned on each (JSON-able), by rank.

    Where it raises on a rank, every rank raises ``ReproError`` (that rank what it raised, if that is another thing).
    """
    _, world_size = place_in_world()
    own: Exception | None = None
    told: dict[str, Any] = {}
    try:
        told["result"] = action()
    except Exception as error:  # noqa: BLE001  whatever it is, the other ranks must not wait for ever
        own = error
        told |= {"error": str(error) or type(error).__name__, "hint": getattr(error, "hint", "")}
    everyone = _exchange(told)
    failed = [(rank, one) for rank, one in enumerate(everyone) if "error" in one]
    if not failed:
        return [one["result"] for one in everyone]
    if own is not None and (not isinstance(own, ReproError) or world_size == 1):
        raise own
    rank, first = failed[0]
    more = f" (and on {len(failed) - 1} more ranks)" if len(failed) > 1 else ""
    told_by = f"rank {rank}: " if world_size > 1 else ""
    raise ReproError(f"{told_by}{first['error']}{more}", hint=first["hint"]) from own


def _exchange(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every rank's document, by rank."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [document]
    device = _device()
    content = torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([content.numel()], device=device))
    longest = max(int(size) for size in sizes)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: content.numel()] = content
    parts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return [json.loads(bytes(part[: int(size)].cpu().numpy())) for part, size in zip(parts, sizes, strict=True)]


def _device() -> torch.device:
    """Return where the default group's backend takes tensors: the host where it can."""
    backends = dist.get_backend_config() if dist.get_backend() == "undefined" else dist.get_backend()
    on_host = any(name in backends for name in ("gloo", "mpi", "ucc"))
    return torch.device("cpu") if on_host else torch.device("cuda", torch.cuda.current_device())
