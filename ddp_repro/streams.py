"""What a command writes to: a terminal of ASCII alone, a reader that left, or nothing, must not change its code."""

import codecs
import contextlib
import errno
import io
import os
import sys
from typing import Any, Final

_PLAIN: Final = {"…": "...", "–": "-", "—": "-", "’": "'", "≥": ">=", "×": "x"}  # noqa: RUF001
_HANDLER: Final = "ddp_repro.plain"


class _Lenient(io.FileIO):
    """A descriptor that takes everything; what could not be written is lost, and ``lost`` says why."""

    lost: OSError | None = None

    def write(self, content: Any, /) -> int | None:  # type: ignore[override]  # None: would block
        """Write, or lose what cannot be written."""
        try:
            return super().write(content)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.EAGAIN):
                raise
            self.lost = error
            return len(content)


def open_streams() -> None:
    """Have stdout and stderr of this process take any text, whatever becomes of their other end."""
    with contextlib.suppress(OSError):
        while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest one that is closed
            os.set_inheritable(fd, True)
        os.close(fd)
    codecs.register_error(_HANDLER, _in_plain)
    sys.stdout, sys.stderr = _stream(1, sys.stdout), _stream(2, sys.stderr)


def close_streams() -> None:
    """Write what is left to write; say on stderr where stdout was lost to something else than a reader that left."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    lost = getattr(getattr(sys.stdout.buffer, "raw", None), "lost", None)
    if lost is not None and lost.errno != errno.EPIPE:
        sys.stderr.write(f"stdout could not be written: {lost.strerror}\n")
        sys.stderr.flush()


def _stream(fd: int, before: Any) -> io.TextIOWrapper:
    """Return a text stream to ``fd``, encoded as the one ``before`` it; that was ``None`` where ``fd`` was closed."""
    if before is not None:
        with contextlib.suppress(OSError):
            before.flush()
    raw = _Lenient(fd, "w", closefd=False)
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors=_HANDLER, line_buffering=fd == 2 or raw.isatty()
    )


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding does not have by what comes near, else by an escape."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign) or ascii(sign)[1:-1] for sign in missing), error.end
