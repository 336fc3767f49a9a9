"""What a launch is: everything outside the code that can move bits, as one rank sees it."""

import importlib.metadata
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ddp_repro.config import RecordConfig, semantic
from ddp_repro.run.environment import numeric_environment
from ddp_repro.run.placement import rank_and_world_size
from ddp_repro.trace.identity import IDENTITY_SCHEMA, identity_digest

# Distributions that compute; the one place that lists them.
COMPUTING = (
    "accelerate", "apex", "bitsandbytes", "deepspeed", "flash-attn", "jax", "jaxlib", "lightning", "numba", "numpy",
    "pandas", "pillow", "pytorch-lightning", "scikit-learn", "scipy", "tokenizers", "torchao", "torchaudio",
    "torchvision", "transformer-engine", "transformers", "triton", "xformers",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a rank knows of itself: its number, its data (name, length, digest, split), the determinism read back.

    ``provenance`` is where the code came from; one rank of a launch finds out.
    """

    rank: int
    data: Mapping[str, Any] | None
    in_force: Mapping[str, Any]
    provenance: Mapping[str, Any]


def rank_identity(config: RecordConfig, seen: Seen) -> dict[str, Any]:
    """Return the identity of this launch as this rank sees it, with its digest.

    World size and backend are those of the process group, where there is one. The digest is SHA-256 over canonical JSON
    of the compared groups.
    """
    groups = {
        "experiment": _experiment(config, seen),
        "software": software(),
        "hardware": hardware(),
        "environment": _environment(),
    }
    return {
        "schema": IDENTITY_SCHEMA,
        "rank": seen.rank,
        "digest": identity_digest(groups),
        **groups,
        "provenance": {**seen.provenance, **_place()},
    }


def _experiment(config: RecordConfig, seen: Seen) -> dict[str, Any]:
    _, world_size = rank_and_world_size()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    settings = semantic(config)
    seed, threads = settings.pop("seed"), settings.pop("threads")
    settings.pop("nproc")
    return {
        "seed": seed,
        "threads": threads,
        "world_size": world_size,
        "ranks_per_node": local,
        "nodes": max(world_size // local, 1),
        "placement": [rank // local for rank in range(world_size)],
        "backend": _backend(),
        "data": None if seen.data is None else dict(seen.data),
        "determinism_in_force": dict(seen.in_force),
        "config": settings,
    }


def _backend() -> str | None:
    """Return the backend by its name, or by device where none was named; ``None`` without a process group."""
    if not dist.is_initialized():
        return None
    name = dist.get_backend()
    return dist.get_backend_config() if name == "undefined" else name


def software() -> dict[str, Any]:
    """Return the versions of everything here that computes."""
    cuda = torch.version.cuda
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if cuda else None,  # type: ignore[no-untyped-call]
        "nccl": _nccl(),
        "driver": _driver(),
        "libc": " ".join(platform.libc_ver()),
        "mkl": torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]
        "mkldnn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "distributions": _distributions(),
        "numpy": np.__version__,
    }


def _nccl() -> str | None:
    if not (torch.version.cuda and dist.is_nccl_available()):
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def _driver() -> str | None:
    version = Path("/proc/driver/nvidia/version")
    return version.read_text().splitlines()[0].strip() if version.is_file() else None


def _distributions() -> dict[str, str]:
    found = {}
    for name in COMPUTING:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Return what this process computes on."""
    # Only where this rank computes on them: asking for their names would make a CUDA context of its own.
    gpus = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)  # type: ignore[no-untyped-call]
    return {
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpus": [torch.cuda.get_device_name(index) for index in gpus],
        "compute_capability": [".".join(map(str, torch.cuda.get_device_capability(index))) for index in gpus],
        "interconnect": _interconnect(),
    }


def _interconnect() -> list[str]:
    """Return the InfiniBand or RoCE devices of this node with their rates; empty where there are none."""
    ports = sorted(Path("/sys/class/infiniband").glob("*/ports/*/rate"))
    return [f"{port.parts[-4]} {port.read_text().strip()}" for port in ports]


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith(("model name", "cpu model", "hardware")):
                return line.partition(":")[2].strip()
    return platform.processor()


def _environment() -> dict[str, Any]:
    return {
        "variables": {"PYTHONHASHSEED": None, **numeric_environment(os.environ)},
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def _place() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
