"""``checkpoint.json``: what a checkpoint consists of, written last, sealed by a digest of its own."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_128_hexdigest

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.files import Entry, write_document
from ddp_repro.run.checkpoint.folder import MANIFEST
from ddp_repro.run.checkpoint.progress import Progress

SCHEMA: Final = 1
KIND: Final = "ddp_repro checkpoint"


class DamagedError(ReproError):
    """A checkpoint that is not as it was written, or was never finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What ``checkpoint.json`` says: how far training was, of how many ranks, and every file by its path."""

    progress: Progress
    world_size: int
    files: Mapping[str, Entry]

    def needed_by(self, rank: int, world_size: int) -> list[str]:
        """Return the files that ``rank`` of ``world_size`` verifies: those it reads, and its share of all others."""
        names = sorted(self.files)
        return [name for at, name in enumerate(names) if at % world_size == rank or rank_of(name) in {None, rank}]


def rank_of(name: str) -> int | None:
    """Return the rank whose own a file is; ``None`` for those that all ranks read."""
    stem = name.partition(".")[0]
    return int(stem.removeprefix("rank-")) if stem.startswith("rank-") else -1 if "/" in name else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``checkpoint.json``, through to the disk."""
    content = {
        "schema": SCHEMA,
        "kind": KIND,
        "progress": asdict(manifest.progress),
        "world_size": manifest.world_size,
        "files": dict(manifest.files),
    }
    write_document(folder / MANIFEST, {**content, "seal": _seal(content)})


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises ``DamagedError`` for one that is missing, foreign or not as it was written, ``ReproError`` for one of a later
    schema (which is sealed in the same way).
    """
    content = _content(folder / MANIFEST)
    seal = content.pop("seal", None)
    if content.get("kind") != KIND:
        raise DamagedError(f"{folder} is no checkpoint of ddp_repro", hint="name one that save_checkpoint wrote")
    if seal != _seal(content):
        raise DamagedError(f"{folder}: {MANIFEST} was changed", hint="take an older checkpoint")
    if content.get("schema") != SCHEMA:
        raise ReproError(
            f"{folder} was written by another version (schema {content.get('schema')}, known is {SCHEMA})",
            hint="use the ddp_repro that wrote it, or name another checkpoint",
        )
    return Manifest(progress=Progress(**content["progress"]), world_size=content["world_size"], files=content["files"])


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(
            f"{path.parent} has no {path.name}: it was never finished", hint="take an older one"
        ) from error
    except OSError as error:
        raise ReproError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not JSON: it was cut or changed", hint="take an older checkpoint") from error
    if not isinstance(content, dict):
        raise DamagedError(f"{path} holds no JSON object", hint="take an older checkpoint")
    return content


def _seal(content: Mapping[str, Any]) -> str:
    return xxh3_128_hexdigest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
