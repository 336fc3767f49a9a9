"""One recorded launch: how it ended, and everything its ranks wrote."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import ReproError
from ddp_repro.trace.document import read_json
from ddp_repro.trace.identity import IDENTITY_SCHEMA, identity_digest
from ddp_repro.trace.launch_record import (
    OUTCOMES,
    PARTED,
    LaunchRecord,
    Parting,
    RankExit,
    read_launch_record,
    refuse_newer,
    told,
    write_launch_record,
)
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.trace.reader import Trace, read_trace
from ddp_repro.trace.sharing import SharedColumns

__all__ = [
    "OUTCOMES",
    "PARTED",
    "Launch",
    "LaunchRecord",
    "Parting",
    "RankExit",
    "launch_so_far",
    "load_launch",
    "read_launch_record",
    "write_launch_record",
]

FINAL_SCHEMA: Final = 1
_RANKS_NAMED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch as it was recorded.

    ``traces``, ``identities`` and ``finals`` (what a rank said that it ended with) are by rank. ``problems`` holds one
    sentence for each thing because of which it must not be judged: what is missing, cut, damaged or newer, and an
    outcome that is neither "finished" nor "parted": one that was ended early is judged by what it wrote until then.
    """

    index: int
    path: Path
    record: LaunchRecord | None
    traces: dict[int, Trace]
    identities: dict[int, dict[str, Any]]
    problems: list[str]
    finals: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def was_cut(self) -> bool:
        """Whether it was ended soon after it had differed from another one: its traces stop there."""
        return self.record is not None and self.record.outcome == PARTED


def load_launch(folder: LaunchFolder, columns: SharedColumns | None = None) -> Launch:
    """Read everything that ``folder`` holds. Never raises on what is missing or damaged: ``problems`` names it.

    ``columns`` are those of launches that were read before, so that what is equal takes no memory again.
    """
    problems: list[str] = []
    record = None
    try:
        record = read_launch_record(folder.record)
    except ReproError as error:
        problems.append(f"how launch {folder.index} ended is unknown: {error}")
    if record is not None and record.outcome not in ("finished", PARTED):
        problems.append(f"launch {folder.index} {told(record)}")
    ranks = _ranks(folder, record, problems)
    launch = Launch(
        index=folder.index,
        path=folder.path,
        record=record,
        traces=_load_traces(
            folder,
            ranks,
            problems,
            columns or SharedColumns(),
            may_be_cut=record is not None and record.outcome == PARTED,
        ),
        identities=_load_identities(folder, ranks, problems),
        problems=problems,
        finals=_load_finals(folder, ranks, problems),
    )
    problems.extend(_mismatches(launch))
    return launch


def launch_so_far(folder: LaunchFolder, traces: Mapping[int, Trace]) -> Launch:
    """Return a launch that still runs as if it were ended now: with the rows that were read of each rank's trace."""
    metas = [trace.meta for trace in traces.values()]
    record = LaunchRecord(
        launch=folder.index,
        world_size=metas[0].world_size,
        outcome=PARTED,
        reason="",
        ranks=[],
        seconds=0.0,
        id=metas[0].launch_id,
    )
    problems: list[str] = []
    launch = Launch(
        index=folder.index,
        path=folder.path,
        record=record,
        traces=dict(traces),
        identities=_load_identities(folder, sorted(traces), problems),
        problems=problems,
    )
    problems.extend(_mismatches(launch))
    return launch


def _ranks(folder: LaunchFolder, record: LaunchRecord | None, problems: list[str]) -> list[int]:
    """Return the ranks that left something and belong to the launch; report those that left nothing or do not."""
    found = folder.ranks()
    if record is None:
        return found
    missing = [rank for rank in range(record.world_size) if rank not in found]
    foreign = [rank for rank in found if rank >= record.world_size]
    if missing:
        problems.append(f"launch {folder.index}: {_named(missing)} left neither a trace nor an identity")
    if foreign:
        problems.append(f"launch {folder.index} had {record.world_size} ranks, but {_named(foreign)} left files there")
    return [rank for rank in found if rank not in foreign]


def _named(ranks: list[int]) -> str:
    numbers = ", ".join(str(rank) for rank in ranks[:_RANKS_NAMED]) + (", …" if len(ranks) > _RANKS_NAMED else "")
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"


def _load_traces(
    folder: LaunchFolder, ranks: list[int], problems: list[str], columns: SharedColumns, *, may_be_cut: bool
) -> dict[int, Trace]:
    traces = {}
    for rank in ranks:
        try:
            trace = columns.shared(read_trace(folder.trace(rank)))
        except ReproError as error:
            problems.append(f"launch {folder.index}, rank {rank}: {error}")
            continue
        traces[rank] = trace
        if trace.damage is not None and not may_be_cut:
            problems.append(f"launch {folder.index}, rank {rank}: {trace.damage}")
    return traces


def _load_identities(folder: LaunchFolder, ranks: list[int], problems: list[str]) -> dict[int, dict[str, Any]]:
    identities = {}
    for rank in ranks:
        path = folder.rank_identity(rank)
        try:
            identity = read_json(path)
            refuse_newer(path, identity, IDENTITY_SCHEMA)
        except ReproError as error:
            problems.append(f"launch {folder.index}, rank {rank}: {error}")
            continue
        identities[rank] = identity
    return identities


def _load_finals(folder: LaunchFolder, ranks: list[int], problems: list[str]) -> dict[int, dict[str, Any]]:
    """Return what ranks said that they ended with; a rank that said nothing is no problem in itself."""
    finals = {}
    for rank in ranks:
        path = folder.final(rank)
        if not path.exists():
            continue
        try:
            finals[rank] = read_json(path)
            refuse_newer(path, finals[rank], FINAL_SCHEMA)
        except ReproError as error:
            finals.pop(rank, None)
            problems.append(f"launch {folder.index}, rank {rank}: {error}")
    return finals


def _mismatches(launch: Launch) -> Iterator[str]:
    """Yield what files of one launch say of each other and of their place that does not fit together."""
    if launch.record is not None and launch.record.launch != launch.index:
        yield f"launch {launch.index} holds the record of launch {launch.record.launch}: files were moved or damaged"
    for rank, trace in launch.traces.items():
        where = f"launch {launch.index}, rank {rank}"
        if (trace.meta.launch, trace.meta.rank) != (launch.index, rank):
            yield f"{where}: its trace is of launch {trace.meta.launch}, rank {trace.meta.rank}: files were moved"
        if launch.record is not None and trace.meta.world_size != launch.record.world_size:
            yield f"{where}: its trace is of a world of {trace.meta.world_size}, not of {launch.record.world_size}"
        if launch.record is not None and trace.meta.launch_id != launch.record.id:
            yield f"{where}: its trace is of another launch than its record: files of several launches were mixed"
        identity = launch.identities.get(rank)
        if identity is not None and identity.get("digest") != trace.meta.identity:
            yield f"{where}: its identity is not the one its trace was recorded under"
        elif identity is not None and identity_digest(identity) != trace.meta.identity:
            yield f"{where}: its identity was changed after the launch, or is damaged"
