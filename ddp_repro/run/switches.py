"""Reads and writes each determinism switch where PyTorch or the interpreter keeps it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config as inductor
from torch.utils import deterministic

from ddp_repro.run.start import hash_seed_in_force

_DEBUG_MODES = ("off", "warn", "error")
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


@dataclass(kw_only=True, slots=True, frozen=True)
class _Switch:
    read: Callable[[], Any]
    write: Callable[[Any], None]


def write(name: str, value: object) -> None:
    """Set one switch. Whether it took is for `read_all` to say."""
    _SWITCHES[name].write(value)


def read_all() -> dict[str, bool | int | str | None]:
    """Return every switch as it is in force now."""
    return {name: switch.read() for name, switch in _SWITCHES.items()}


def remedy(name: str, value: object) -> str:
    """Return what a user does about a switch that did not take."""
    if name == "hash_seed":
        return f"start Python with PYTHONHASHSEED={value} set, or leave the switch out with hash_seed=None"
    if name == "cublas_workspace":
        return f"set {_CUBLAS}={value} before Python starts, or apply determinism before the first use of CUDA"
    return "something else sets it as well; apply determinism last, or leave this switch alone (null)"


def _write_algorithms(mode: str) -> None:
    torch.use_deterministic_algorithms(mode != "off", warn_only=mode == "warn")


def _write_cublas(workspace: str) -> None:
    # cuBLAS reads the variable once, with its first handle; writing it later would only look as if it took.
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no types here
        os.environ[_CUBLAS] = workspace


def _leave_to_the_interpreter(_: object) -> None:
    """Do nothing: the hash seed is fixed before the first line of Python runs."""


def _attribute(owner: Any, name: str) -> _Switch:
    return _Switch(read=lambda: getattr(owner, name), write=lambda value: setattr(owner, name, value))


# In the order in which they are written: use_deterministic_algorithms moves inductor's switch along.
_SWITCHES = {
    "deterministic_algorithms": _Switch(
        read=lambda: _DEBUG_MODES[torch.get_deterministic_debug_mode()], write=_write_algorithms
    ),
    "fill_uninitialized_memory": _attribute(deterministic, "fill_uninitialized_memory"),
    "inductor_deterministic": _attribute(inductor, "deterministic"),
    "cudnn_deterministic": _attribute(torch.backends.cudnn, "deterministic"),
    "cudnn_benchmark": _attribute(torch.backends.cudnn, "benchmark"),
    "cudnn_tf32": _attribute(torch.backends.cudnn, "allow_tf32"),
    "float32_matmul_precision": _Switch(
        read=torch.get_float32_matmul_precision, write=torch.set_float32_matmul_precision
    ),
    "cublas_workspace": _Switch(read=lambda: os.environ.get(_CUBLAS), write=_write_cublas),
    "hash_seed": _Switch(read=hash_seed_in_force, write=_leave_to_the_interpreter),
}
