"""Reads a trace: what is whole in it, and one sentence about what is not."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from ddp_repro.errors import ReproError
from ddp_repro.trace.observations import Observation, Trace
from ddp_repro.trace.schema import CLOSING_PHASE, END_TOLD, SCHEMA_VERSION, TraceMeta, meta_of, schema_version
from ddp_repro.trace.seal import Intact, intact_prefix

__all__ = ["Observation", "Trace", "read_trace", "trace_in"]

_DECODED_COLUMNS: Final = [0, 2, 3, 4, 5, 6]  # all but seq, which counts the rows
_ROWS_AT_ONCE: Final = 1 << 15  # many small batches are joined before they are copied


def read_trace(path: Path) -> Trace:
    """Read the trace at ``path``; a damaged or cut one gives what is intact before the damage, and ``damage``.

    Raises ``ReproError`` for a file that is missing, is no trace (or not even its beginning is intact), or was
    written by a newer version. The file is checked against its seals before anything in it is decoded.
    """
    return trace_in(mapped(path), path)


def trace_in(data: pa.Buffer, path: Path) -> Trace:
    """Read the trace that ``data``, the bytes of ``path``, holds; see ``read_trace``."""
    intact = intact_prefix(data)
    stream = data.slice(0, intact.size)
    meta = meta_in(path, stream)
    try:
        trace = decoded(stream, intact.rows, meta)
    except (pa.ArrowException, OSError, ValueError, IndexError, MemoryError) as error:
        raise ReproError(f"{path} is sealed, and still does not decode: {error}", hint="record it again") from error
    trace = _without_closing_row(trace)
    return replace(trace, damage=_damage(trace, intact, data.size))


def mapped(path: Path) -> pa.Buffer:
    """Return the bytes of a file, mapped and not read; raises ``ReproError`` where it cannot be opened."""
    try:
        with path.open("rb") as file:  # pyarrow itself takes no path that is not UTF-8
            is_empty = os.fstat(file.fileno()).st_size == 0
            return pa.py_buffer(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error))
        raise ReproError(f"cannot read the trace {path}: {reason}", hint="check the folder that was named") from error


def meta_in(path: Path, stream: pa.Buffer) -> TraceMeta:
    """Return whose trace a ``stream`` of ``path``, whose seals were checked, is; raises as ``read_trace``."""
    no_trace = ReproError(
        f"{path} is no trace of ddp_repro, or its very beginning is damaged", hint="record this launch again"
    )
    if stream.size == 0:
        raise no_trace
    try:
        schema = ipc.open_stream(stream).schema
        version = schema_version(schema.metadata or {})
        if version <= SCHEMA_VERSION:
            return meta_of(schema)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise no_trace from error
    raise ReproError(
        f"{path} was written by a newer version of ddp_repro: schema {version}, this one reads up to {SCHEMA_VERSION}",
        hint="update ddp_repro where you read it",
    )


def decoded(stream: pa.Buffer, rows: int, meta: TraceMeta) -> Trace:
    """Return the ``rows`` rows of a stream, a closing row among them; raises ``ValueError`` or Arrow's errors."""
    if rows > stream.size:  # a row takes several bytes, however well it compresses: its number alone does
        raise ValueError(f"{rows} rows in {stream.size} bytes")
    trace = Trace(
        meta=meta,
        step=np.empty(rows, np.int32),
        seq=np.arange(rows, dtype=np.int64),
        phase=np.empty(rows, np.int32),
        name=np.empty(rows, np.int32),
        spec=np.empty(rows, np.int32),
        digest=np.empty((rows, 2), np.uint64),
        value=np.empty(rows, np.float64),
        valid=np.empty(rows, np.bool_),
        phases=[],
        names=[],
        specs=[],
        end=None,
        damage=None,
    )
    at = 0
    for table in _tables(stream):
        table.validate()
        _fill(trace, slice(at, at + table.num_rows), table)
        at += table.num_rows
    if at != rows:
        raise ValueError(f"{at} rows where {rows} were sealed")
    return trace


def _tables(stream: pa.Buffer) -> Iterator[pa.Table]:
    """Yield the batches of ``stream``, joined to tables of about ``_ROWS_AT_ONCE`` rows."""
    options = ipc.IpcReadOptions(use_threads=False, included_fields=_DECODED_COLUMNS)
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in ipc.open_stream(stream, options=options):
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(gathered)
            gathered, rows = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _fill(trace: Trace, rows: slice, table: pa.Table) -> None:
    trace.step[rows] = table.column("step").to_numpy()
    digests = table.column("digest").combine_chunks()
    first = digests.offset * 2
    trace.digest[rows] = np.frombuffer(digests.buffers()[1], np.uint64)[first : first + 2 * len(digests)].reshape(-1, 2)
    value, numbers = table.column("value"), trace.value
    assert isinstance(numbers, np.ndarray), "it was made for this"
    if value.null_count == len(value):
        numbers[rows], trace.valid[rows] = np.nan, False
    else:
        numbers[rows] = value.to_numpy()
        trace.valid[rows] = value.is_valid().to_numpy()
    _fill_labels(trace.phase[rows], trace.phases, table.column("phase"))
    _fill_labels(trace.name[rows], trace.names, table.column("name"))
    _fill_labels(trace.spec[rows], trace.specs, table.column("spec"))


def _fill_labels(codes: npt.NDArray[np.int32], labels: list[str], column: pa.ChunkedArray) -> None:
    """Copy the codes of ``column``; add to ``labels`` what its dictionary has more.

    A dictionary only ever grows at its end, so joining chunks with shorter and longer ones keeps every code. A code
    outside its dictionary, which only a forged trace has, would make Arrow read foreign memory: hence the full check.
    """
    column.validate(full=True)
    joined = column.combine_chunks()
    codes[:] = joined.indices.to_numpy()
    labels.extend(joined.dictionary.slice(len(labels)).to_pylist())


def _without_closing_row(trace: Trace) -> Trace:
    """Take off the closing row, and the labels that only it used."""
    rows = len(trace)
    end, end_told = None, False
    if rows and trace.phases[trace.phase[-1]] == CLOSING_PHASE and trace.value[-1] == rows - 1:
        end, end_told = trace.names[trace.name[-1]], trace.specs[trace.spec[-1]] == END_TOLD
        rows -= 1
    columns = {
        column: getattr(trace, column)[:rows]
        for column in ("step", "seq", "phase", "name", "spec", "digest", "value", "valid")
    }
    labels = {
        f"{column}s": getattr(trace, f"{column}s")[: columns[column].max(initial=-1) + 1]
        for column in ("phase", "name", "spec")
    }
    return replace(trace, **columns, **labels, end=end, end_told=end_told)


def _damage(trace: Trace, intact: Intact, size: int) -> str | None:
    if trace.end is not None and intact.ended:
        return None
    whole = f"{len(trace):,} observations are whole" + (f" (up to step {trace.step[-1]})" if len(trace) else "")
    if intact.torn:
        return f"the trace is damaged or cut short at byte {intact.size:,} of {size:,}; {whole}"
    return f"the trace is cut: its rank stopped before it closed it; {whole}"
