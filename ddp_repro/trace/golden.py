"""One golden: what a launch gave, in one file that can be committed, moved and copied; nothing in it is of one launch.

The file is an Arrow IPC stream like a trace, sealed in the same way, with the rows of all ranks one after the other.
"""

import hashlib
import io
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from ddp_repro.errors import ReproError
from ddp_repro.trace.identity import COMPARED, identity_digest
from ddp_repro.trace.observations import Trace
from ddp_repro.trace.reader import mapped
from ddp_repro.trace.schema import DIGEST_ALGORITHM, DIGEST_BYTES, TraceMeta
from ddp_repro.trace.seal import END_OF_STREAM, SEAL_KEY, Intact, Sealer, intact_prefix, seal_text

GOLDEN_SCHEMA: Final = 1
_HEAD: Final = b"golden"
_ROWS_A_BATCH: Final = 1 << 16
_LABELS: Final = ("phase", "name", "spec")
_FIELDS: Final = (
    pa.field("rank", pa.int32(), nullable=False),
    pa.field("step", pa.int32(), nullable=False),
    pa.field("phase", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("spec", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("digest", pa.binary(DIGEST_BYTES), nullable=False),
    pa.field("value", pa.float64(), nullable=True),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Golden:
    """What one launch gave.

    ``level`` is ``step`` (one row a rank, step and phase) or ``full``; ``ignore`` what was left out before rows were
    put together. ``identities`` (compared groups), ``finals`` and ``traces`` are by rank, ``code`` tells where the code
    came from, ``observer`` which version of the probes watched.
    """

    level: str
    capture: str
    observer: str
    ignore: tuple[str, ...]
    code: dict[str, Any]
    identities: dict[int, dict[str, Any]]
    finals: dict[int, dict[str, Any]]
    traces: dict[int, Trace]

    @property
    def key(self) -> str:
        """The digest of the identity that all ranks have; of all ranks' digests, where they differ."""
        digests = [identity_digest(identity) for _, identity in sorted(self.identities.items())]
        return digests[0] if len(set(digests)) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()


def compared_groups(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return of an identity what is compared, and nothing that is of one launch."""
    return {group: identity.get(group) for group in COMPARED}


def golden_bytes(golden: Golden) -> bytes:
    """Return the file of a golden; equal goldens give equal bytes."""
    labels = {column: _common(golden, f"{column}s") for column in _LABELS}
    schema = pa.schema(_FIELDS, metadata={"schema": str(GOLDEN_SCHEMA), _HEAD: json.dumps(_head(golden))})
    buffer, sealer, made = io.BytesIO(), Sealer(), bytearray()
    options = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    placeholder, rows = secrets.token_hex(16), 0
    with ipc.new_stream(buffer, schema, options=options) as stream:
        for batch in _batches(golden, labels, schema):
            rows += batch.num_rows
            stream.write_batch(batch, custom_metadata={SEAL_KEY: seal_text(rows, placeholder)})
            group = bytearray(buffer.getbuffer())
            buffer.seek(0)
            buffer.truncate()
            sealer.seal(group, placeholder.encode())
            made += group
    return bytes(made + END_OF_STREAM)


def read_golden(path: Path) -> Golden:
    """Read the golden in ``path``. Raises ``ReproError`` for a file that is missing, damaged, newer, or none."""
    data = mapped(path)
    intact = intact_prefix(data)
    try:
        if intact.size == 0:
            raise ValueError("its very beginning is not what was written")
        stream = ipc.open_stream(data.slice(0, intact.size))
        version = int((stream.schema.metadata or {})[b"schema"])
        if version <= GOLDEN_SCHEMA:
            return _golden(data, intact, stream.schema)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        told = str(error).partition("\n")[0][:200]
        raise ReproError(f"{path} is damaged, or no golden: {told}", hint="get it back from your repository") from error
    raise ReproError(
        f"{path} was written by a newer version of ddp_repro: schema {version}, this one reads up to {GOLDEN_SCHEMA}",
        hint="update ddp_repro where you read it",
    )


def _head(golden: Golden) -> dict[str, Any]:
    distinct: list[dict[str, Any]] = []
    for identity in golden.identities.values():
        if identity not in distinct:
            distinct.append(identity)
    return {
        "level": golden.level,
        "capture": golden.capture,
        "observer": golden.observer,
        "digest": DIGEST_ALGORITHM,
        "ignore": list(golden.ignore),
        "code": golden.code,
        "identities": distinct,
        "identity_of": [distinct.index(golden.identities[rank]) for rank in sorted(golden.identities)],
        "finals": {str(rank): final for rank, final in sorted(golden.finals.items())},
    }


def _common(golden: Golden, column: str) -> dict[str, int]:
    """Return the labels of all ranks, numbered."""
    numbers: dict[str, int] = {}
    for _, trace in sorted(golden.traces.items()):
        for label in getattr(trace, column):
            numbers.setdefault(label, len(numbers))
    return numbers


def _batches(golden: Golden, labels: Mapping[str, dict[str, int]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield an empty batch, by which the head is sealed on its own, then the rows of each rank."""
    dictionaries = {column: pa.array(list(numbers), pa.string()) for column, numbers in labels.items()}
    is_first = True
    for rank, trace in sorted(golden.traces.items()):
        codes = {column: _codes(trace, column, numbers) for column, numbers in labels.items()}
        begins = range(0, len(trace), _ROWS_A_BATCH)
        for part in [*([slice(0, 0)] if is_first else []), *(slice(at, at + _ROWS_A_BATCH) for at in begins)]:
            labelled = [
                pa.DictionaryArray.from_arrays(
                    pa.array(codes[column][part], schema.field(column).type.index_type), dictionaries[column]
                )
                for column in _LABELS
            ]
            yield pa.RecordBatch.from_arrays(_columns(rank, trace, part, labelled), schema=schema)
        is_first = False


def _codes(trace: Trace, column: str, numbers: Mapping[str, int]) -> npt.NDArray[np.int32]:
    translation = np.array([numbers[label] for label in getattr(trace, f"{column}s")], np.int32)
    codes: npt.NDArray[np.int32] = translation[getattr(trace, column)] if len(trace) else np.empty(0, np.int32)
    return codes


def _columns(rank: int, trace: Trace, part: slice, labelled: list[pa.Array]) -> list[pa.Array]:
    steps = trace.step[part]
    digests = pa.py_buffer(trace.digest[part].tobytes())
    return [
        pa.array(np.full(len(steps), rank, np.int32)),
        pa.array(steps),
        *labelled,
        pa.Array.from_buffers(pa.binary(DIGEST_BYTES), len(steps), [None, digests]),
        pa.array(trace.value[part], mask=~trace.valid[part]),
    ]


def _golden(data: pa.Buffer, intact: Intact, schema: pa.Schema) -> Golden:
    if not intact.ended:
        raise ValueError(f"what it holds ends, or is changed, at byte {intact.size:,} of {data.size:,}")
    if not schema.equals(pa.schema(_FIELDS)):
        raise ValueError("it has other columns")
    if intact.rows > intact.size:  # a row takes several bytes, however well it compresses
        raise ValueError(f"{intact.rows} rows in {intact.size} bytes")
    head = json.loads(schema.metadata[_HEAD])
    if head["digest"] != DIGEST_ALGORITHM:
        raise ValueError(f"its digests are {head['digest']}")
    table = ipc.open_stream(data.slice(0, intact.size)).read_all()
    table.validate(full=True)
    identities = {rank: head["identities"][which] for rank, which in enumerate(head["identity_of"])}
    return Golden(
        level=str(head["level"]),
        capture=str(head["capture"]),
        observer=str(head["observer"]),
        ignore=tuple(map(str, head["ignore"])),
        code=dict(head["code"]),
        identities={rank: compared_groups(identity) for rank, identity in identities.items()},
        finals={int(rank): dict(final) for rank, final in head["finals"].items()},
        traces=_traces(table.combine_chunks(), identities, str(head["capture"])),
    )


def _traces(table: pa.Table, identities: Mapping[int, Mapping[str, Any]], capture: str) -> dict[int, Trace]:
    columns = {name: _array(table, name) for name in ("rank", "step", *_LABELS, "value")}
    valid = table.column("value").is_valid().to_numpy()
    phases, names, specs = (_labels(table, name) for name in _LABELS)
    digest = np.frombuffer(b"".join(table.column("digest").to_pylist()), np.uint64).reshape(-1, 2)
    traces = {}
    for rank, identity in identities.items():
        rows = np.flatnonzero(columns["rank"] == rank)
        traces[rank] = Trace(
            meta=TraceMeta(
                identity=identity_digest(identity), launch=-1, rank=rank, world_size=len(identities), capture=capture
            ),
            seq=np.arange(len(rows), dtype=np.int64),
            **{name: columns[name][rows] for name in ("step", *_LABELS, "value")},
            digest=digest[rows],
            valid=valid[rows],
            phases=phases,
            names=names,
            specs=specs,
            end="finished",
            damage=None,
        )
    return traces


def _array(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy()
    parts = [chunk.indices.to_numpy().astype(np.int32) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _labels(table: pa.Table, name: str) -> list[str]:
    chunks = table.column(name).chunks
    return [str(label) for label in chunks[0].dictionary.to_pylist()] if chunks else []
