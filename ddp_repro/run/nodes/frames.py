"""What goes over a connection between drivers: frames of a JSON object and a block of bytes, never code."""

import json
import struct
from dataclasses import dataclass
from typing import Any, Final

PIECE: Final = 1 << 22  # bytes of a file in one frame
_HEAD: Final = struct.Struct(">II")
_MOST_JSON: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message; one that says nothing is a sign of life."""

    says: dict[str, Any]
    block: bytes = b""


class FrameError(ValueError):
    """What came is nothing that a driver sends."""


def packed(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    text = json.dumps(frame.says).encode()
    return _HEAD.pack(len(text), len(frame.block)) + text + frame.block


class FrameReader:
    """Turns what was read into frames, keeping an unfinished one for later."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames completed by ``chunk``; raises `FrameError`."""
        self._rest += chunk
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        if len(self._rest) < _HEAD.size:
            return None
        text, block = _HEAD.unpack_from(self._rest)
        if text > _MOST_JSON or block > PIECE:
            raise FrameError(f"a frame of {text} and {block} bytes")
        begin, end = _HEAD.size + text, _HEAD.size + text + block
        if len(self._rest) < end:
            return None
        try:
            says = json.loads(self._rest[_HEAD.size : begin])
        except ValueError as error:
            raise FrameError("a frame that is not JSON") from error
        if not isinstance(says, dict):
            raise FrameError("a frame that holds no object")
        frame = Frame(says=says, block=bytes(self._rest[begin:end]))
        del self._rest[:end]
        return frame
