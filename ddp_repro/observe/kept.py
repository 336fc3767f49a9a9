"""Tensors that operators read and left, kept until the step ends and then written to a file."""

import logging
from typing import Any, Final

import safetensors
import torch

from ddp_repro.errors import ReproError
from ddp_repro.observe.window import Window

_SMALL: Final = 1 << 16  # bytes of all inputs of a call that are kept as well
_DTYPES: Final = frozenset(
    {"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"}
)
_logger: Final = logging.getLogger(__name__)


class Kept:
    """The tensors of one part of a step, within a number of bytes; the first that no longer fit are left out."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tensors: dict[str, torch.Tensor] = {}
        self._left = window.keep_bytes
        self._dropped = 0

    def keep(self, part: str, name: str, values: list[Any], side: str = "out") -> None:
        """Keep what a call left, if it belongs to the part that is kept."""
        if self._window.keep is None or part != self._window.keep:
            return
        for number, value in enumerate(value for value in values if isinstance(value, torch.Tensor)):
            self._add(f"{name}.{side}{number}", value)

    def keep_small(self, part: str, name: str, values: list[Any]) -> None:
        """Keep what a call reads, where that is little."""
        if self._window.keep is None or part != self._window.keep:
            return
        size = sum(value.nbytes for value in values if isinstance(value, torch.Tensor) and _can_be_kept(value))
        if size <= _SMALL:
            self.keep(part, name, values, "in")

    def write(self, step: int) -> None:
        """Write what was kept of ``step`` to its file, and keep it no longer."""
        tensors, self._tensors = self._tensors, {}
        self._left = self._window.keep_bytes
        if self._dropped:
            _logger.info("capture.keep_mb was too little for %d tensors of operators", self._dropped)
            self._dropped = 0
        if not tensors or self._window.keep_at is None:
            return
        path = self._window.keep_at(step)
        try:
            safetensors.serialize_file({name: _in_memory(tensor) for name, tensor in tensors.items()}, path)
        except (OSError, safetensors.SafetensorError) as error:
            raise ReproError(f"cannot write {path}: {error}", hint="free space, or lower capture.keep_mb") from error

    def _add(self, name: str, tensor: torch.Tensor) -> None:
        if not _can_be_kept(tensor):
            return
        if tensor.nbytes > self._left:
            self._dropped += 1
            return
        self._left -= tensor.nbytes
        with torch.no_grad():
            plain = tensor.detach().cpu().resolve_neg().resolve_conj()
            self._tensors[name] = plain.clone(memory_format=torch.contiguous_format)


def _can_be_kept(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one piece of memory that a file can hold: sparse and nested ones have no size of it."""
    is_known = str(tensor.dtype).removeprefix("torch.") in _DTYPES
    return is_known and tensor.layout is torch.strided and not tensor.is_nested


def _in_memory(tensor: torch.Tensor) -> safetensors.TensorSpec:
    return safetensors.TensorSpec(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tensor.shape,
        data_ptr=tensor.data_ptr(),
        data_len=tensor.numel() * tensor.element_size(),
    )
