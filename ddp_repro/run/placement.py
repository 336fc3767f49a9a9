"""Which rank this process is: from the process group, else from the launcher's environment, else alone."""

import os

import torch.distributed as dist


def rank_and_world_size() -> tuple[int, int]:
    """Return (rank, world size) of this process.

    torchrun's ``RANK`` and ``WORLD_SIZE`` count before ``init_process_group`` as well, so that a loader or a stream
    which is made early does not take this process for rank 0 of 1.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
