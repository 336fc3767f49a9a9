"""The columns and metadata of a trace: what writer and reader agree on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 1
DIGEST_ALGORITHM: Final = "xxh3-128"
DIGEST_BYTES: Final = 16

PHASES: Final[tuple[str, ...]] = (
    "init",
    "boundary",
    "data",
    "rng",
    "forward",
    "loss",
    "grad_local",
    "grad_reduced",
    "grad_step",
    "param",
    "buffer",
    "optimizer",
    "scaler",
    "collective",
    "op",
)
"""Phases in causal order: what is observed in one is computed from what the earlier ones hold."""

UNDRAWN: Final = bytes(DIGEST_BYTES)
"""Stands for the state of a generator that has not moved since observing began."""

BOUNDARY_STATE: Final = "state at the boundary"
"""Spec of a generator's state as a step begins to compute; other states are told with the batches."""

FULL: Final = "capture.limit_mb"
"""Name of the row, of phase ``op``, that tells from which step on there was no room any more for its kind."""

CLOSING_PHASE: Final = "end"
"""Phase of the last row of a whole trace: its name is the reason, its value the number of rows before it."""
END_TOLD: Final = "final"
"""Spec of the closing row of a rank that wrote ``rank-<r>.final.json`` before it."""

_FIELDS: Final = (
    pa.field("step", pa.int32(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("phase", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("spec", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("digest", pa.binary(DIGEST_BYTES), nullable=False),
    pa.field("value", pa.float64(), nullable=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMeta:
    """Whose trace it is.

    ``identity`` is the hexadecimal digest of the rank's identity, ``launch`` counts the launches of a run from 0,
    ``capture`` is the capture level that was in force, ``launch_id`` a random text that all ranks of a launch share and
    no other launch has; empty in traces from before there was one.
    """

    identity: str
    launch: int
    rank: int
    world_size: int
    capture: str
    launch_id: str = ""


def arrow_schema(meta: TraceMeta) -> pa.Schema:
    """Return the Arrow schema of a trace, with ``meta``, the schema version and the digest algorithm as metadata."""
    metadata = {
        "schema": str(SCHEMA_VERSION),
        "digest": DIGEST_ALGORITHM,
        "identity": meta.identity,
        "launch": str(meta.launch),
        "rank": str(meta.rank),
        "world_size": str(meta.world_size),
        "capture": meta.capture,
        "launch_id": meta.launch_id,
    }
    return pa.schema(_FIELDS, metadata=metadata)


def schema_version(metadata: Mapping[bytes, bytes]) -> int:
    """Return the schema version that a trace states; ``KeyError`` or ``ValueError`` where it states none."""
    return int(metadata[b"schema"])


def meta_of(schema: pa.Schema) -> TraceMeta:
    """Read back what ``arrow_schema`` was given; ``KeyError`` or ``ValueError`` where these are not its columns."""
    if not schema.equals(pa.schema(_FIELDS)):
        raise ValueError("not the columns of a trace")
    metadata = schema.metadata
    return TraceMeta(
        identity=metadata[b"identity"].decode(),
        launch=int(metadata[b"launch"]),
        rank=int(metadata[b"rank"]),
        world_size=int(metadata[b"world_size"]),
        capture=metadata[b"capture"].decode(),
        launch_id=metadata.get(b"launch_id", b"").decode(),
    )
