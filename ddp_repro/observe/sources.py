"""Where in the user's code something is computed: the innermost frame outside torch, the standard library and this."""

import sys
import sysconfig
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Final

import torch

_TORCH: Final = str(Path(torch.__file__).parent) + "/"
_STDLIB: Final = sysconfig.get_paths()["stdlib"] + "/"
_OBSERVE: Final = str(Path(__file__).parent) + "/"
_WRAPPER: Final = "watched"
"""What every function of ours is called that stands between the user's code and torch."""


class _Side(Enum):
    LIBRARY = 0
    OURS = 1
    USER = 2


_sides: Final[dict[str, _Side]] = {}
_told: Final[dict[str, str]] = {}


def source_of(frame: FrameType | None) -> str | None:
    """Return ``package/file.py:57`` for what a frame computes; ``None`` where it is the observer that does.

    Empty where no frame is the user's.
    """
    while frame is not None:
        code = frame.f_code
        side = _sides.get(code.co_filename) or _side(code.co_filename)
        if side is _Side.USER:
            return f"{_told.get(code.co_filename) or _tell(code.co_filename)}:{frame.f_lineno}"
        if side is _Side.OURS and code.co_name != _WRAPPER:
            return None
        frame = frame.f_back
    return ""


def _side(filename: str) -> _Side:
    if filename.startswith(_OBSERVE):
        side = _Side.OURS
    elif filename.startswith((_TORCH, "<")) or (filename.startswith(_STDLIB) and "-packages/" not in filename):
        side = _Side.LIBRARY
    else:
        side = _Side.USER
    _sides[filename] = side
    return side


def _tell(filename: str) -> str:
    """Return a file as it is imported: below the longest of the folders that modules come from."""
    roots = (str(Path(entry or ".").resolve()) + "/" for entry in sys.path)
    root = max((root for root in roots if filename.startswith(root)), key=len, default="")
    _told[filename] = filename.removeprefix(root)
    return _told[filename]
