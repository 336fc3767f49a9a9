"""Where checkpoints lie: ``<root>/step-<8 digits>``, put there by one rename, and the newest whole one of them."""

import ctypes
import errno
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.files import settle_folder, writing

MANIFEST: Final = "checkpoint.json"
_NAME: Final = re.compile(r"step-(\d{8,})")
_ASIDE: Final = re.compile(r"\.step-\d{8,}\.(partial|removed)-[0-9a-f]+")
_AT_CWD: Final = -100
_EXCHANGE: Final = 2


def name_of(step: int) -> str:
    """Return the name of the folder of the checkpoint at ``step``."""
    return f"step-{step:08d}"


def step_of(path: Path) -> int | None:
    """Return the step that a folder's name tells; ``None`` where it is no checkpoint's name."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else None


def checkpoints_in(root: Path) -> list[Path]:
    """Return the folders under ``root`` that are named as checkpoints, newest step first; whole or not."""
    found = [path for path in root.iterdir() if step_of(path) is not None and path.is_dir()]
    return sorted(found, key=lambda path: step_of(path) or 0, reverse=True)


def is_checkpoint(path: Path) -> bool:
    """Tell whether ``path`` is meant as a checkpoint rather than as a root that holds some."""
    return (path / MANIFEST).exists() or step_of(path) is not None


def make_partial(root: Path, step: int) -> Path:
    """Make the folder in which the checkpoint at ``step`` is written. Raises ``ReproError`` where that fails."""
    partial = root / f".{name_of(step)}.partial-{secrets.token_hex(4)}"
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # not every folder may be opened
            settle_folder(root.parent)
        partial.mkdir()
    return partial


def publish(partial: Path, step: int) -> Path:
    """Give a finished checkpoint its name by one rename, through to the disk; one of that step is replaced whole."""
    final = partial.with_name(name_of(step))
    with writing(final):
        settle_folder(partial)
        if final.exists():
            _exchange(partial, final)
        else:
            os.rename(partial, final)  # noqa: PTH104  what a test makes fail
        settle_folder(final.parent)
    discard(partial)
    return final


def _exchange(one: Path, other: Path) -> None:
    """Let two folders swap names in one act of the file system."""
    library = ctypes.CDLL(None, use_errno=True)
    swap = getattr(library, "renameat2", None)
    if swap is not None and swap(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE) == 0:
        return
    if swap is not None and ctypes.get_errno() not in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    raise ReproError(
        f"{other} is already there, and this file system cannot swap two folders in one act",
        hint="remove it, or name another folder",
    )


def prune(root: Path, keep: int, newest: Path) -> None:
    """Remove all but the ``keep`` newest checkpoints, ``newest`` among those that stay, and what crashes left aside."""
    others = [path for path in checkpoints_in(root) if path != newest]
    for path in others[max(keep - 1, 0) :]:
        aside = root / f".{path.name}.removed-{secrets.token_hex(4)}"
        with suppress(OSError):
            path.rename(aside)
    for path in root.iterdir():
        if _ASIDE.fullmatch(path.name):
            discard(path)


def discard(path: Path) -> None:
    """Remove what lies aside under a name that no reader looks at; what cannot be removed stays."""
    shutil.rmtree(path, ignore_errors=True)
