"""A rank's place in its world: process group, device, and the way out."""

import atexit
import gc
import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from ddp_repro.config import Backend, LauncherConfig
from ddp_repro.errors import ReproError
from ddp_repro.run.open_files import flush_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Rank, world size and device; ``shard`` is the logical data-parallel shard, equal to the rank."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    device: torch.device

    @property
    def shard(self) -> int:
        """Return the logical data-parallel shard that this rank holds."""
        return self.rank


def read_place(backend: Backend) -> Place:
    """Return this rank's place from the launcher's environment variables.

    Raises ReproError where NCCL is asked for without a GPU for each local rank.
    """
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend is Backend.nccl and gpus < local_size:
        raise ReproError(
            f"launcher.backend=nccl needs a GPU for each of the {local_size} ranks of this node; {gpus} were found.",
            hint="Lower nproc or use launcher.backend=gloo.",
        )
    on_gpu = backend is Backend.nccl or (backend is Backend.auto and gpus >= local_size)
    return Place(
        rank=int(os.environ["RANK"]),
        local_rank=local_rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        local_world_size=local_size,
        device=torch.device("cuda", local_rank) if on_gpu else torch.device("cpu"),
    )


def join(place: Place, launcher: LauncherConfig) -> None:
    """Join the process group; a collective that waits longer than ``launcher.timeout_s`` fails."""
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    backend = "nccl" if place.device.type == "cuda" else "gloo"
    # The driver ends a hung world by launcher.timeout_s; the collectives' own limit lies above it, so that the
    # driver can still ask for the stacks.
    dist.init_process_group(backend, timeout=timedelta(seconds=launcher.timeout_s + 60))


def leave() -> None:
    """Leave the process group; every reference to a DDP wrapper must be gone.

    Measured on PyTorch 2.13 with gloo: destroying the group while the wrapper lives can hang for ever. The barrier
    keeps a fast rank from closing connections that a slow one still reads from.
    """
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


def exit_now(code: int) -> NoReturn:
    """Run the exit handlers, flush, and end the process.

    Finished gloo ranks can abort at interpreter exit (code -6).
    """
    atexit._run_exitfuncs()  # noqa: SLF001  os._exit skips them and there is no public way to run them
    logging.shutdown()
    flush_files()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # a script may have closed or replaced it
            stream.flush()
    os._exit(code)
