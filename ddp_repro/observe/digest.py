"""Digests of tensors on the host: XXH3-128 over the bits, seeded with dtype, shape and placement.

Bits decide: ``+0`` and ``-0`` differ, payloads of NaN count, order counts. The memory is that of the contiguous tensor,
so that strides make no difference. Memory is read where it lies, without a copy, a dispatch or an effect on autograd.
"""

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from ddp_repro.observe.torch_internals import sparse_parts, without_torch_function, wrapped_parts

REPLICATED: Final = " replicated"
"""Suffix of the spec of a tensor that must be equal on all ranks; not part of the digest."""

UNMANAGED: Final = " unmanaged"
"""Suffix of the spec of a tensor that several ranks train and nobody is known to keep equal; likewise."""


class Spec(NamedTuple):
    """What is known of every tensor of one dtype and shape: text (``texts``: one a ``Standing``), seed and memory."""

    text: str
    replicated: str
    texts: tuple[str, str, str]
    seed: int
    memory: Any
    is_complex: bool


_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter})
_SPECS: Final[dict[tuple[torch.dtype, torch.Size], Spec]] = {}
_STRIDED: Final = torch.strided


def observation(tensor: torch.Tensor) -> tuple[Spec, bytes]:
    """Return the spec of ``tensor`` and its digest (16 bytes). Reads memory only: no bit and no graph is touched."""
    if (
        type(tensor) in _PLAIN
        and tensor.is_cpu
        and tensor.layout is _STRIDED
        and not tensor.is_nested
        and tensor.is_contiguous()
        and not tensor.is_neg()
    ):
        spec = _SPECS.get((tensor.dtype, tensor.shape)) or _learn_spec(tensor.dtype, tensor.shape)
        if not (spec.is_complex and tensor.is_conj()):
            address = tensor.data_ptr()
            # A zero address is an empty tensor, or one whose zeros are not stored.
            memory = spec.memory.from_address(address) if address else _materialised(tensor, spec)
            return spec, xxh3_128_digest(memory, spec.seed)
    with torch.no_grad(), without_torch_function():
        return _slow_observation(tensor)


def tensor_digest(tensor: torch.Tensor) -> bytes:
    """Return the digest of ``tensor``: 16 bytes over its bits, dtype, shape and (for a DTensor) placement."""
    return observation(tensor)[1]


def spec_of(tensor: torch.Tensor) -> str:
    """Return dtype, shape and placement as text: ``float32[128,64]``, ``int64[]``, ``float32[8,4] Shard(dim=0)``."""
    if type(tensor) in _PLAIN and not tensor.is_nested:
        spec = _SPECS.get((tensor.dtype, tensor.shape)) or _learn_spec(tensor.dtype, tensor.shape)
        return spec.text + _layout_suffix(tensor)
    return observation(tensor)[0].text


def bytes_digest(content: bytes | bytearray | memoryview, spec: str) -> bytes:
    """Return the digest (16 bytes) of ``content`` as something that ``spec`` describes."""
    return xxh3_128_digest(content, _seed(spec))


@functools.lru_cache(maxsize=4096)
def _seed(spec: str) -> int:
    return xxh3_64_intdigest(spec.encode())


def spec_text(dtype: torch.dtype, shape: Sequence[int]) -> str:
    """Return ``float32[128,64]`` for a dtype and a shape; a ragged length, whose number is by chance, is a ``*``."""
    lengths = (str(length) if isinstance(length, int) else "*" for length in shape)
    return f"{str(dtype).removeprefix('torch.')}[{','.join(lengths)}]"


def _new_spec(text: str, size: int = 0, *, is_complex: bool = False) -> Spec:
    texts = (sys.intern(text), sys.intern(text + REPLICATED), sys.intern(text + UNMANAGED))
    return Spec(
        texts[0],
        texts[1],
        texts,
        xxh3_64_intdigest(text.encode()),
        ctypes.c_char * size,
        is_complex,
    )


def _learn_spec(dtype: torch.dtype, shape: torch.Size) -> Spec:
    spec = _new_spec(spec_text(dtype, shape), shape.numel() * dtype.itemsize, is_complex=dtype.is_complex)
    _SPECS[dtype, shape] = spec
    return spec


def _materialised(tensor: torch.Tensor, spec: Spec) -> bytes:
    stored = tensor.detach().clone(memory_format=torch.contiguous_format)
    return bytes(spec.memory.from_address(stored.data_ptr())) if tensor.numel() and stored.data_ptr() else b""


def _layout_suffix(tensor: torch.Tensor) -> str:
    layout = "" if tensor.layout is _STRIDED else f" {str(tensor.layout).removeprefix('torch.')}"
    return layout + (" meta" if tensor.is_meta else "")


def _slow_observation(tensor: torch.Tensor) -> tuple[Spec, bytes]:
    """Observe what is not plain contiguous host memory, by way of plain contiguous host memory."""
    parts = _parts(tensor)
    if parts is not None:
        text, tensors = parts
        spec = _new_spec(text)
        return spec, xxh3_128_digest(b"".join(tensor_digest(part) for part in tensors), spec.seed)
    if tensor.is_meta:
        spec = _new_spec(spec_text(tensor.dtype, tensor.shape) + _layout_suffix(tensor))
        return spec, xxh3_128_digest(b"", spec.seed)
    plain = tensor.detach().as_subclass(torch.Tensor).cpu().resolve_conj().resolve_neg().contiguous()
    spec = _SPECS.get((plain.dtype, plain.shape)) or _learn_spec(plain.dtype, plain.shape)
    memory = spec.memory.from_address(plain.data_ptr()) if plain.data_ptr() else _materialised(plain, spec)
    return spec, xxh3_128_digest(memory, spec.seed)


def _parts(tensor: torch.Tensor) -> tuple[str, list[torch.Tensor]] | None:
    """Return the spec of a nested, distributed, wrapped, sparse or quantised tensor, and what it is made of."""
    if tensor.is_nested and tensor.layout is _STRIDED:  # which has no shape
        own = list(tensor.unbind())
        return f"{spec_text(tensor.dtype, [len(own)])} nested", own
    text = spec_text(tensor.dtype, tensor.shape)
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(tensor, distributed.DTensor):
        return f"{text} {', '.join(map(str, tensor.placements))}", [tensor.to_local()]
    wrapped = wrapped_parts(tensor)
    if wrapped is not None:
        return f"{text} {type(tensor).__name__}", wrapped
    if tensor.layout is not _STRIDED:
        return text + _layout_suffix(tensor), _parts_of_layout(tensor)
    return (text + _layout_suffix(tensor), _quantised_parts(tensor)) if tensor.is_quantized else None


def _parts_of_layout(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:
        return list(sparse_parts(tensor))
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.to_dense()]


def _quantised_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.qscheme() in {torch.per_tensor_affine, torch.per_tensor_symmetric}:
        return [tensor.int_repr(), torch.tensor([tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64)]
    return [tensor.int_repr(), tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
