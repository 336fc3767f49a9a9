"""Files of a checkpoint: written through to the disk with their digests, read only where the digests fit."""

import contextlib
import json
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import safetensors
import torch
from xxhash import xxh3_128_hexdigest

from ddp_repro.errors import ReproError

Entry = dict[str, Any]
"""``size`` in bytes and ``xxh3_128`` (32 hexadecimal digits) of a file."""

_OS_ERROR: Final = re.compile(r"os error (\d+)")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ``ReproError`` where what is written within to ``path`` cannot be written."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise ReproError(
            f"cannot write {path}: {_reason(error)}", hint="free space or mend the folder, or name another one"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    number = _OS_ERROR.search(str(error))
    return os.strerror(int(number[1])) if number else str(error)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> Entry:
    """Write contiguous tensors on the host into a safetensors file, through to the disk."""
    with writing(path):
        # Not safetensors.torch.save_file: it refuses tensors that share memory, as views of one flat tensor do.
        safetensors.serialize_file({name: _in_memory(tensor) for name, tensor in tensors.items()}, path)
        return settle_file(path)


def _in_memory(tensor: torch.Tensor) -> safetensors.TensorSpec:
    return safetensors.TensorSpec(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tensor.shape,
        data_ptr=tensor.data_ptr(),
        data_len=tensor.numel() * tensor.element_size(),
    )


def write_document(path: Path, document: Mapping[str, Any]) -> Entry:
    """Write a JSON object, through to the disk."""
    with writing(path):
        path.write_bytes(json.dumps(document, allow_nan=False, separators=(",", ":")).encode())
        return settle_file(path)


def settle_file(path: Path) -> Entry:
    """Have what was written to ``path`` reach the disk, and return its size and digest."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return entry_of(path)


def settle_folder(path: Path) -> None:
    """Have the names in a folder reach the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def entry_of(path: Path) -> Entry:
    """Return size and digest of a file. Raises ``OSError``."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return {"size": 0, "xxh3_128": xxh3_128_hexdigest(b"")}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {"size": size, "xxh3_128": xxh3_128_hexdigest(content)}


def damage(folder: Path, name: str, entry: Any) -> str:
    """Return what is wrong with a file of a checkpoint, in words; empty where it is as it was written."""
    try:
        if (folder / name).stat().st_size != entry["size"]:
            return f"{name} was cut or extended"
        return "" if entry_of(folder / name) == entry else f"{name} was changed"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    except ValueError:  # mmap of a file that was cut meanwhile
        return f"{name} was cut"


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file whose digest was found right. Raises ``ReproError`` for other content."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ReproError(f"{path} cannot be read: {error}", hint="take an older checkpoint") from error
    if not isinstance(document, dict):
        raise ReproError(f"{path} holds no JSON object", hint="take an older checkpoint")
    return document
