"""Sharded parameters (FSDP2's DTensors): saved by torch.distributed.checkpoint as safetensors, each rank its part.

DCP's own format keeps its table of contents as a pickle; the storage for Hugging Face's form has none. Measured on
torch 2.13: dtypes and bits come back (bfloat16, bool, payloads of NaN, uneven and empty shards), and nothing is
unpickled from a file.
"""

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from ddp_repro.errors import ReproError

FOLDER: Final = "sharded"


def is_sharded(tensor: torch.Tensor) -> bool:
    """Tell whether ``tensor`` is a DTensor, of which this rank holds a part."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def sharding(tensor: Any) -> dict[str, Any]:
    """Return mesh and placements of a DTensor as JSON. Raises ``ReproError`` for a placement that is not known."""
    mesh = tensor.device_mesh
    return {
        "mesh": {"shape": list(mesh.mesh.shape), "names": list(mesh.mesh_dim_names or ())},
        "placements": [_placement(one) for one in tensor.placements],
        "strides": list(tensor.stride()),
    }


def _placement(placement: Any) -> dict[str, Any]:
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415  a second that only sharded models pay

    if type(placement) is Replicate:
        return {"kind": "replicate"}
    if type(placement) is Shard:
        return {"kind": "shard", "dim": placement.dim}
    raise ReproError(f"a DTensor is placed as {placement}, which cannot be saved", hint="save it between two steps")


def _placement_of(described: Mapping[str, Any]) -> Any:
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415  as above

    return Replicate() if described["kind"] == "replicate" else Shard(described["dim"])


def gather_up(model: nn.Module) -> None:
    """Have FSDP2 put parameters that a forward left whole back into their shards."""
    module = sys.modules.get("torch.distributed.fsdp")
    if module is not None:
        for child in model.modules():
            if isinstance(child, module.FSDPModule):
                child.reshard()


def save_sharded(tensors: Mapping[str, Any], folder: Path) -> None:
    """Write each rank's parts of ``tensors`` into ``folder``; all ranks take part. Raises ``ReproError`` on all."""
    checkpoint: Any = importlib.import_module("torch.distributed.checkpoint")
    writer = checkpoint.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with _quiet():
            checkpoint.save(dict(tensors), storage_writer=writer)
    except checkpoint.api.CheckpointException as error:
        raise ReproError(
            f"the sharded tensors cannot be written: {_brief(error)}", hint="free space, or name another folder"
        ) from error


def shards_in(path: Path) -> list[Path]:
    """Return the files of sharded tensors in a checkpoint, in the same order on every rank."""
    return sorted((path / FOLDER).iterdir()) if (path / FOLDER).is_dir() else []


def load_sharded(marks: Mapping[str, Mapping[str, Any]], folder: Path, meshes: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the DTensors that ``marks`` describe, on the meshes given by ``mesh_key``, read from ``folder``.

    Each rank reads for itself, without a collective.
    """
    checkpoint: Any = importlib.import_module("torch.distributed.checkpoint")
    made = {key: _empty(mark, meshes) for key, mark in marks.items()}
    reader = checkpoint.HuggingFaceStorageReader(str(folder))
    with _quiet():
        checkpoint.load(dict(made), storage_reader=reader, no_dist=True)
    return made


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch.distributed.*")
        yield


def _brief(error: Any) -> str:
    rank, (cause, _) = next(iter(error.failures.items()))
    return f"rank {rank}: {str(cause).strip().splitlines()[-1][:200] or type(cause).__name__}"


def mesh_key(described: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells the mesh of a DTensor from others, given what ``sharding`` returned."""
    return tuple(described["mesh"]["shape"]), tuple(described["mesh"]["names"])


def meshes_of(tensors: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the meshes of this process's DTensors by ``mesh_key``."""
    return {mesh_key(sharding(one)): one.device_mesh for one in tensors.values()}


def _empty(mark: Mapping[str, Any], meshes: Mapping[Any, Any]) -> Any:
    from torch.distributed.tensor import DTensor  # noqa: PLC0415  as above
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # noqa: PLC0415

    mesh = meshes.get(mesh_key(mark)) or (next(iter(meshes.values())) if len(meshes) == 1 else None)
    if mesh is None:
        raise ReproError(
            f"{mark['$sharded']} was sharded over a mesh of {mark['mesh']['shape']}, and the model here is not",
            hint="shard the model as it was when it was saved",
        )
    placements = [_placement_of(one) for one in mark["placements"]]
    shape = torch.Size(mark["shape"])
    local, _ = compute_local_shape_and_global_offset(shape, mesh, placements)
    content = torch.empty(local, dtype=getattr(torch, mark["dtype"]), device=mesh.device_type)
    return DTensor.from_local(content, mesh, placements, run_check=False, shape=shape, stride=tuple(mark["strides"]))
