"""Tensors that a rank kept of a step: read as plain bytes, since bfloat16 is no type of NumPy's."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors

from ddp_repro.errors import ReproError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One tensor as a safetensors file has it: ``dtype`` in its words (``F32``, ``BF16``), row by row in ``data``."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def read_tensors(path: Path) -> dict[str, Stored]:
    """Return all tensors of a file by name; raises ``ReproError`` where it cannot be read or is none."""
    try:
        entries = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (OSError, safetensors.SafetensorError) as error:
        raise ReproError(f"cannot read {path}: {error}", hint="look again at the launch that wrote it") from error
    return {
        name: Stored(dtype=entry["dtype"], shape=tuple(entry["shape"]), data=bytes(entry["data"]))
        for name, entry in entries
    }


def keep_only(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Have a file hold ``tensors`` and nothing else; without any it goes."""
    if not tensors:
        path.unlink(missing_ok=True)
        return
    arrays = {name: np.frombuffer(one.data, np.uint8) for name, one in tensors.items()}
    content = {
        name: safetensors.TensorSpec(
            dtype=_NAMES[one.dtype], shape=one.shape, data_ptr=arrays[name].ctypes.data, data_len=len(one.data)
        )
        for name, one in tensors.items()
    }
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        safetensors.serialize_file(content, temporary)
        temporary.replace(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ReproError(f"cannot write {path}: {error}", hint="free space or mend the folder") from error


_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
