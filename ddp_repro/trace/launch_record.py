"""How a launch ended, as the driver wrote it down: ``launch.json``."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import ReproError
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.layout import LaunchFolder

LAUNCH_SCHEMA: Final = 1
PARTED: Final = "parted"
"""Outcome of a launch that the driver ended, soon after it had differed from another one."""
OUTCOMES: Final = ("finished", "failed", "hung", "interrupted", "stopped", "killed", PARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one rank ended; ``last_step`` is the last optimizer step that it completed, ``None`` where unknown."""

    rank: int
    exit_code: int | None
    last_step: int | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first difference because of which a launch was ended: where it stands, and from which launch it is one."""

    reference: int
    step: int
    ranks: tuple[int, ...]
    phase: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """``launch.json``: how a launch ended.

    ``outcome`` is one of ``OUTCOMES``, ``reason`` one sentence on it (empty when finished), ``seconds`` wall time,
    ``id`` a random text that no other launch has (empty in records from before there was one). ``parting`` says for one
    that was ended early (``parted``) what ended it.
    """

    schema: int = LAUNCH_SCHEMA
    launch: int
    world_size: int
    outcome: str
    reason: str
    ranks: list[RankExit]
    seconds: float
    id: str = ""
    parting: Parting | None = None


def write_launch_record(folder: LaunchFolder, record: LaunchRecord) -> None:
    """Write ``launch.json``; raises ``ReproError`` when it cannot be written."""
    write_json(folder.record, asdict(record))


def read_launch_record(path: Path) -> LaunchRecord:
    """Read ``launch.json``; raises ``ReproError`` when it is missing, newer, or no launch record."""
    content = read_json(path)
    refuse_newer(path, content, LAUNCH_SCHEMA)
    try:
        record = _record(content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ReproError(f"{path} is no launch record: {error!r}", hint="record this launch again") from error
    if record.outcome not in OUTCOMES or record.world_size < 1:
        raise ReproError(f"{path} is no launch record: its outcome or world size cannot be", hint="record it again")
    return record


def _record(content: dict[str, Any]) -> LaunchRecord:
    ranks = [
        RankExit(
            rank=int(entry["rank"]),
            exit_code=_optional_int(entry["exit_code"]),
            last_step=_optional_int(entry["last_step"]),
            note=str(entry["note"]),
        )
        for entry in content["ranks"]
    ]
    return LaunchRecord(
        schema=int(content["schema"]),
        launch=int(content["launch"]),
        world_size=int(content["world_size"]),
        outcome=str(content["outcome"]),
        reason=str(content["reason"]),
        ranks=ranks,
        seconds=float(content["seconds"]),
        id=str(content.get("id", "")),
        parting=_parting(content.get("parting")),
    )


def _parting(content: Any) -> Parting | None:
    if content is None:
        return None
    return Parting(
        reference=int(content["reference"]),
        step=int(content["step"]),
        ranks=tuple(int(rank) for rank in content["ranks"]),
        phase=str(content["phase"]),
        name=str(content["name"]),
    )


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def refuse_newer(path: Path, content: dict[str, Any], known: int) -> None:
    """Raise ``ReproError`` where the content of a file is of a schema that is not known yet, or of none."""
    schema = content.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise ReproError(f"{path} states no schema version: it was damaged", hint="record this launch again")
    if schema > known:
        raise ReproError(
            f"{path} was written by a newer version of ddp_repro: schema {schema}, this one reads up to {known}",
            hint="update ddp_repro where you read it",
        )


def told(record: LaunchRecord) -> str:
    """Return how a launch ended that did not finish, to follow its name: "hung: …"."""
    words = {
        "hung": "hung",
        "failed": "failed",
        "interrupted": "was interrupted",
        "stopped": "was stopped early",
        "killed": "was killed",
        PARTED: "was ended early",
    }
    return words[record.outcome] + (f": {record.reason}" if record.reason else "")
