"""Reads a trace while its rank still writes it: each time what was added, checked against its seals."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from ddp_repro.trace.observations import Trace
from ddp_repro.trace.reader import decoded, meta_in
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.seal import Group, Unsealer


class GrowingTrace:
    """The trace of one rank at ``path``, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsealer = Unsealer()
        self._meta: TraceMeta | None = None
        self._labels = b""  # schema and dictionaries so far: what later batches are decoded with
        self._at = 0
        self._rows = 0

    @property
    def meta(self) -> TraceMeta | None:
        """Whose trace it is; ``None`` until that was read."""
        return self._meta

    def read(self) -> Trace | None:
        """Return the rows that were added since the last call, ``None`` where there are none.

        Labels are those of the whole trace so far, and their codes stay. The closing row is among the rows. Bytes that
        are not whole yet, or damaged, stay where they are. Raises ``ReproError`` for what is no trace, or a newer one,
        and ``ValueError`` or Arrow's errors where sealed rows do not decode.
        """
        data = self._added()
        groups = list(self._unsealer.groups(data)) if data.size else []
        if not groups:
            return None
        return self._decoded(data.slice(0, groups[-1].end), groups)

    def _added(self) -> pa.Buffer:
        try:
            with self._path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                return pa.py_buffer(os.pread(file.fileno(), size - self._at, self._at) if size > self._at else b"")
        except OSError:
            return pa.py_buffer(b"")

    def _decoded(self, data: pa.Buffer, groups: list[Group]) -> Trace:
        stream = pa.py_buffer(self._labels + data.to_pybytes())
        self._meta = self._meta or meta_in(self._path, stream)
        before, self._rows = self._rows, groups[-1].rows
        view = memoryview(data)
        self._labels += b"".join(view[part] for group in groups for part in group.labels)
        self._at += data.size
        added = decoded(stream, self._rows - before, self._meta)
        return replace(added, seq=added.seq + before)
