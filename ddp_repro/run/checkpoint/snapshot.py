"""What one rank has to save: a JSON document, and the tensors that it refers to by their keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from ddp_repro.errors import ReproError
from ddp_repro.observe.torch_internals import wrapped_parts
from ddp_repro.run.checkpoint.bits import host_copy
from ddp_repro.run.checkpoint.encoding import Encoder
from ddp_repro.run.checkpoint.sharded import is_sharded, sharding

_NATIVE: Final = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
    | {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
    | {torch.uint16, torch.uint32, torch.uint64}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State in the course of being gathered.

    ``tensors`` and ``sharded`` are by key, ``<section>/<name>``: those that a rank holds whole, and the DTensors of
    which it holds a part. They are the training's own, not copies.
    """

    document: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    sharded: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def encode(self, value: Any, key: str, *, leave_objects: bool = False) -> Any:
        """Return ``value`` as JSON, its tensors kept under keys that begin with ``key``.

        With ``leave_objects``, what cannot be saved without a pickle is left out of dictionaries, and noted.
        """
        encoder = Encoder(keep=self.keep, leave_objects=leave_objects)
        encoded = encoder.encode(value, key)
        self.left_out.extend(encoder.left_out)
        return encoded

    def keep(self, key: str, tensor: torch.Tensor) -> dict[str, Any]:
        """Take a tensor and return the object that stands for it. Raises ``ReproError`` for one without plain bits."""
        key = self._free(key)
        if is_sharded(tensor):
            if tensor.dtype not in _NATIVE:
                raise ReproError(f"{key} is a DTensor of {tensor.dtype}, which cannot be saved", hint="save real parts")
            self.sharded[key] = tensor
            return {"$sharded": key, **_described(tensor), **sharding(tensor)}
        problem = problem_of(tensor)
        if problem:
            raise ReproError(f"{key} {problem}, which cannot be saved", hint="leave it out, or save it in dense parts")
        self.tensors[key] = tensor
        mark = {"$tensor": key, **_described(tensor), "device": tensor.device.type}
        strides = list(tensor.stride())
        if _is_dense(tensor) and not tensor.is_contiguous():
            mark["strides"] = strides
        return mark

    def _free(self, key: str) -> str:
        free, number = key, 1
        while free in self.tensors or free in self.sharded:
            number += 1
            free = f"{key}#{number}"
        return free


def _described(tensor: torch.Tensor) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}


def describe(mark: Mapping[str, Any]) -> str:
    """Return ``float32[128,64]`` for the object that stands for a tensor."""
    return f"{mark['dtype']}[{','.join(map(str, mark['shape']))}]"


def problem_of(tensor: torch.Tensor) -> str:
    """Return why a tensor has no plain bits to be saved or written to; empty where it has."""
    if isinstance(tensor, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)):
        return "has no values yet (a lazy module that never ran)"
    if tensor.is_meta:
        return "is on the meta device and has no values"
    if tensor.layout is not torch.strided:
        return f"is a sparse tensor ({tensor.layout})"
    if tensor.is_quantized:
        return "is a quantised tensor"
    return f"is a {type(tensor).__name__}" if wrapped_parts(tensor) is not None else ""


def _is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether the elements fill their memory without gaps and without lying on each other, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return tensor.numel() > 0


def storable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor on the host, of a dtype that safetensors knows, with the same bits."""
    plain = host_copy(tensor)
    if plain.dtype in _NATIVE:
        return plain
    return torch.view_as_real(plain) if plain.is_complex() else plain.reshape(-1).view(torch.uint8)


def unspread(stored: torch.Tensor, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    """Return what ``storable`` was given, from what it returned, its dtype and shape."""
    if dtype in _NATIVE:
        return stored
    if dtype.is_complex:
        return torch.view_as_complex(stored)
    return stored.view(dtype).reshape(shape)
