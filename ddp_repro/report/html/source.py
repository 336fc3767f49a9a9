"""Where a page's traces come from, one rank of one launch at a time: a run can be larger than memory."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from ddp_repro.errors import ReproError
from ddp_repro.trace.launch import Launch, LaunchRecord, read_launch_record
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.trace.reader import read_trace

_MUCH: Final = 100 << 20  # bytes of traces, about two seconds
_READERS: Final = 16


class Source(Protocol):
    """The launches of a run, by the numbers that its verdict gives them."""

    def record(self, launch: int) -> LaunchRecord | None:
        """Return how a launch ended, ``None`` where that is unknown."""

    def ranks(self, launch: int) -> list[int]:
        """Return the ranks that left a trace."""

    def of_rank(self, launch: int, rank: int) -> Launch:
        """Return a launch with the trace of one rank; without it, and with a problem, where it cannot be read."""

    def readers(self) -> int:
        """Return how many processes are worth starting to read the traces; 0: none, they are here."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Launches that were read already."""

    launches: Mapping[int, Launch]

    @classmethod
    def of(cls, launches: Iterable[Launch]) -> "Loaded":
        """Return the source that holds ``launches``."""
        return cls({launch.index: launch for launch in launches})

    def record(self, launch: int) -> LaunchRecord | None:
        """Return how a launch ended."""
        return self.launches[launch].record if launch in self.launches else None

    def ranks(self, launch: int) -> list[int]:
        """Return the ranks that left a trace."""
        return sorted(self.launches[launch].traces) if launch in self.launches else []

    def of_rank(self, launch: int, rank: int) -> Launch:
        """Return a launch with the trace of one rank."""
        held = self.launches[launch]
        traces = {rank: held.traces[rank]} if rank in held.traces else {}
        return replace(held, traces=traces, problems=[])  # what was wrong with it stands in the verdict

    def readers(self) -> int:
        """Return 0: everything was read."""
        return 0


@dataclass(frozen=True, slots=True)
class Files:
    """Launches on disk."""

    folders: Mapping[int, Path]

    @classmethod
    def of(cls, run: Path, verdict: Mapping[str, Any]) -> "Files":
        """Return the launches that a verdict names: where it says, or, in a run that was moved, beside it."""
        folders: dict[int, Path] = {}
        for entry in verdict["launches"]:
            said = Path(entry["folder"])
            beside = run / said.name
            number = int(entry["launch"])
            inside = said.parent == Path(str(verdict.get("folder", "")))
            folders[number] = beside if inside and beside.is_dir() else said
        return cls(folders)

    def record(self, launch: int) -> LaunchRecord | None:
        """Return how a launch ended."""
        try:
            return read_launch_record(LaunchFolder(self.folders[launch]).record)
        except ReproError:
            return None

    def ranks(self, launch: int) -> list[int]:
        """Return the ranks that left a trace."""
        folder = LaunchFolder(self.folders[launch])
        return [rank for rank in folder.ranks() if folder.trace(rank).exists()]

    def of_rank(self, launch: int, rank: int) -> Launch:
        """Return a launch with the trace of one rank."""
        path = self.folders[launch]
        traces, problems = {}, list[str]()
        try:
            traces[rank] = read_trace(LaunchFolder(path).trace(rank))
        except ReproError as error:
            problems.append(f"launch {launch}, rank {rank}: {error}")
        return Launch(index=launch, path=path, record=None, traces=traces, identities={}, problems=problems)

    def readers(self) -> int:
        """Return a process for each core where there is much to read."""
        traces = (
            LaunchFolder(path).trace(rank) for launch, path in self.folders.items() for rank in self.ranks(launch)
        )
        size = sum(trace.stat().st_size for trace in traces)
        return min(os.cpu_count() or 1, _READERS) if size > _MUCH else 0
