"""Writes one rank's trace: an Arrow IPC stream, one sealed batch at each flush."""

import io
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from ddp_repro.errors import ReproError
from ddp_repro.trace.labels import LabelColumn
from ddp_repro.trace.schema import CLOSING_PHASE, DIGEST_BYTES, END_TOLD, PHASES, TraceMeta, arrow_schema
from ddp_repro.trace.seal import SEAL_KEY, Sealer, seal_text

_ROWS_AT_MOST: Final = 1 << 16  # rows kept back between two flushes: bounds memory in long stretches without a step


Row = tuple[int, str, str, str, bytes, float | None]
"""Step, phase, name, spec, digest (16 bytes) and value of one observation."""


class TraceWriter:
    """An append-only trace of one rank.

    Rows are gathered by ``append`` and written by ``flush``, in one batch and one write to the operating system, so
    that a process that is killed leaves a file that is readable up to its last flush. When a write fails (a full
    disk), the file is cut back to the last whole batch, ``ReproError`` is raised, and later calls write nothing.
    """

    def __init__(self, path: Path, meta: TraceMeta) -> None:
        self._path = path
        self._schema = arrow_schema(meta)
        self._file = _create(path)
        self._buffer = io.BytesIO()
        options = ipc.IpcWriteOptions(compression="lz4", emit_dictionary_deltas=True, use_threads=False)
        self._stream = ipc.new_stream(self._buffer, self._schema, options=options)
        types = [self._schema.field(column).type for column in ("phase", "name", "spec")]
        self._labels = [LabelColumn(types[0], (*PHASES, CLOSING_PHASE)), LabelColumn(types[1]), LabelColumn(types[2])]
        self._sealer = Sealer()
        # Random, so that no label and no digest in a batch can be mistaken for it.
        self._placeholder = secrets.token_hex(16)
        self._rows = 0
        self._size = 0
        self._failed = False
        self._empty()
        self._write_batch()

    def append(self, step: int, phase: str, name: str, spec: str, digest: bytes, value: float | None = None) -> None:  # noqa: PLR0913, PLR0917 -- the columns of a row; an object for each would cost more than the row
        """Add one observation: ``digest`` has 16 bytes. Raises ``ReproError`` only where it has to flush."""
        assert len(digest) == DIGEST_BYTES, f"a digest of {len(digest)} bytes"
        self._steps.append(step)
        self._phases.append(phase)
        self._names.append(name)
        self._specs.append(spec)
        self._digests.append(digest)
        self._values.append(value)
        if len(self._steps) >= _ROWS_AT_MOST:
            self.flush()

    def extend(self, rows: Sequence[Row]) -> None:
        """Add observations, each a tuple of what ``append`` takes: faster than one by one."""
        if not rows:
            return
        columns = (self._steps, self._phases, self._names, self._specs, self._digests, self._values)
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(values)  # type: ignore[attr-defined]  # columns of six types, each gets its own
        if len(self._steps) >= _ROWS_AT_MOST:
            self.flush()

    def append_many(  # noqa: PLR0913, PLR0917 -- as in append
        self, step: int, phase: str, name: str, spec: str, digests: bytes, values: Sequence[float] | None = None
    ) -> None:
        """Add n observations of one name: ``digests`` has 16 n bytes, ``values`` n numbers or is ``None``."""
        count, rest = divmod(len(digests), DIGEST_BYTES)
        assert rest == 0, f"digests of {len(digests)} bytes"
        assert values is None or len(values) == count, f"{count} digests with {len(values or ())} values"
        self._steps.extend([step] * count)
        self._phases.extend([phase] * count)
        self._names.extend([name] * count)
        self._specs.extend([spec] * count)
        self._digests.append(digests)
        self._values.extend([None] * count if values is None else values)
        if len(self._steps) >= _ROWS_AT_MOST:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered as one batch and hand it to the operating system.

        Raises ``ReproError`` when the file cannot be written.
        """
        if self._steps:
            self._write_batch()

    def close(self, reason: str, *, end_told: bool = False) -> None:
        """Flush, write the closing row (its name is ``reason``) and the end of the stream; a second call is ignored.

        ``end_told`` says that the rank wrote what training ended with, so that a reader misses that file.

        Raises ``ReproError`` when the file cannot be written; the file is closed even so.
        """
        if self._file < 0:
            return
        try:
            if not self._failed:
                self.flush()
                told = END_TOLD if end_told else ""
                self.append(self._last_step, CLOSING_PHASE, reason, told, bytes(DIGEST_BYTES), float(self._rows))
                self.flush()
                self._stream.close()
                self._store(self._buffer.getbuffer())
        finally:
            os.close(self._file)
            self._file = -1

    def _empty(self) -> None:
        self._steps: list[int] = []
        self._phases: list[str] = []
        self._names: list[str] = []
        self._specs: list[str] = []
        self._digests: list[bytes] = []
        self._values: list[float | None] = []

    def _write_batch(self) -> None:
        assert self._file >= 0, f"{self._path} is closed"
        if self._failed:
            self._empty()
            return
        self._last_step = self._steps[-1] if self._steps else -1
        batch = self._batch()
        self._rows += batch.num_rows
        self._empty()
        self._stream.write_batch(batch, custom_metadata={SEAL_KEY: seal_text(self._rows, self._placeholder)})
        group = bytearray(self._buffer.getbuffer())
        self._buffer.seek(0)
        self._buffer.truncate()
        self._sealer.seal(group, self._placeholder.encode())
        self._store(group)

    def _batch(self) -> pa.RecordBatch:
        rows = len(self._steps)
        digests = pa.py_buffer(b"".join(self._digests))
        columns = [
            pa.array(self._steps, pa.int32()),
            pa.array(range(self._rows, self._rows + rows), pa.int64()),
            *(c.encode(x) for c, x in zip(self._labels, (self._phases, self._names, self._specs), strict=True)),
            pa.Array.from_buffers(pa.binary(DIGEST_BYTES), rows, [None, digests]),
            pa.array(self._values, pa.float64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _store(self, data: bytearray | memoryview) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._failed = True
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise _cannot_write(self._path, error) from error
        self._size += len(data)


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError as error:
        raise ReproError(
            f"{path} is already there: a trace is never overwritten", hint="name a folder that holds no run"
        ) from error
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> ReproError:
    return ReproError(
        f"cannot write the trace {path}: {error.strerror}",
        hint="free space or mend the folder, or let the run write elsewhere; what was recorded before stays readable",
    )
