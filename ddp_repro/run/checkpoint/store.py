"""The tensors of a checkpoint by their keys: a rank's own where it saved one, else rank 0's; its part of a DTensor."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.bits import copy_bits
from ddp_repro.run.checkpoint.encoding import Decoder
from ddp_repro.run.checkpoint.modules import slots_of
from ddp_repro.run.checkpoint.search import Found
from ddp_repro.run.checkpoint.sharded import FOLDER, is_sharded, load_sharded, meshes_of
from ddp_repro.run.checkpoint.snapshot import unspread

if TYPE_CHECKING:
    from ddp_repro.run.checkpoint.saving import Contents


class Store:
    """Reads tensors of a checkpoint that was found whole. Raises ``ReproError`` where one is not there after all."""

    def __init__(self, found: Found, rank: int | None, document: Mapping[str, Any], contents: "Contents") -> None:
        path, names = found.path, found.manifest.files
        self._files: dict[str, tuple[Any, str]] = {}
        self._path = path
        with self._reading():
            for name in sorted(names):
                if name.endswith(".safetensors") and not name.startswith(("rank-", f"{FOLDER}/")):
                    self._open(path / name, f"{name.removesuffix('.safetensors')}/")
            own = f"rank-{rank}.safetensors"
            if own in names:  # what it holds replaces what all share
                self._open(path / own, "")
            needed = _keys("$tensor", document if rank is not None else {**document, "rng": {}})
            missing = [key for key in needed if key not in self._files]
        if missing:
            raise ReproError(f"{path} has no tensor {missing[0]}", hint="take an older checkpoint")
        self._sharded = self._load_sharded(document, contents)

    def _open(self, file: Path, prefix: str) -> None:
        opened: Any = safe_open(file, framework="pt")
        self._files.update({f"{prefix}{key}": (opened, key) for key in opened.keys()})  # noqa: SIM118  no mapping

    def _load_sharded(self, document: Mapping[str, Any], contents: "Contents") -> dict[str, Any]:
        marks = {mark["$sharded"]: mark for mark in _marks("$sharded", document)}
        if not marks:
            return {}
        slots = slots_of(contents.model)
        held = {name: slots.tensor(name) for name in slots.held}
        meshes = meshes_of({name: tensor for name, tensor in held.items() if is_sharded(tensor)})
        with self._reading():
            return load_sharded(marks, self._path / FOLDER, meshes)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise ReproError(f"{self._path} cannot be read: {error}", hint="take an older checkpoint") from error

    def tensor(self, mark: Mapping[str, Any]) -> torch.Tensor:
        """Return the tensor that ``mark`` stands for; its memory may be that of the file."""
        if "$sharded" in mark:
            return self._sharded[mark["$sharded"]]  # type: ignore[no-any-return]
        opened, key = self._files[mark["$tensor"]]
        with self._reading():
            stored = opened.get_tensor(key)
        return unspread(stored, getattr(torch, mark["dtype"]), mark["shape"])

    def decode(self, value: Any) -> Any:
        """Return saved state; its tensors are new ones, on the device and with the strides of those that were saved."""
        return Decoder(tensor=self._new).decode(value)

    def _new(self, mark: Mapping[str, Any]) -> torch.Tensor:
        stored = self.tensor(mark)
        if "$sharded" in mark:
            return stored.detach().clone()
        strides = mark.get("strides", stored.stride())
        made = torch.empty_strided(stored.shape, strides, dtype=stored.dtype, device=_device(mark["device"]))
        copy_bits(stored, made)
        return made


def _device(kind: str) -> torch.device:
    if kind == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _marks(mark: str, document: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(document, Mapping):
        if mark in document:
            yield document
        else:
            for part in document.values():
                yield from _marks(mark, part)
    elif isinstance(document, list):
        for part in document:
            yield from _marks(mark, part)


def _keys(mark: str, document: Any) -> Iterator[str]:
    return (one[mark] for one in _marks(mark, document))
