"""Files that a script leaves open: Python writes out what they hold as it ends, which ``os._exit`` does not."""

import io
import os
import stat
from contextlib import suppress
from typing import Any, Final

from ddp_repro.observe.census import living_of

_BUFFERS: Final = (io.BufferedWriter, io.BufferedRandom)
_FILES: Final = (io.TextIOWrapper, io.IOBase, *_BUFFERS)
"""Classes of files that hold something back; below ``IOBase`` are those written in Python, as of ``gzip``."""


def flush_files() -> None:
    """Write out what is held back for the files on disk that are open in this process.

    Pipes and sockets are left alone: one that nobody reads would be waited for.
    """
    for file in sorted(living_of(_FILES), key=_depth):
        # Whatever a class of the script's own raises here must cost the rank nothing.
        with suppress(Exception):
            if not file.closed and file.writable() and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.flush()


def _depth(file: Any) -> int:
    """Return 0 for what writes to a buffer as it is flushed, 1 for buffers."""
    return int(isinstance(file, _BUFFERS))
