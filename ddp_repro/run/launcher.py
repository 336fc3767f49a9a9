"""Starts one world of ranks, watches it, and ends it whole."""

import os
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ddp_repro.run.driver import Interrupted
from ddp_repro.run.ports import reserved_port
from ddp_repro.run.processes import MARK, RankCommand, end_world, exit_text, start
from ddp_repro.run.progress import VARIABLE, LineReader, Message
from ddp_repro.trace.launch import LaunchRecord, RankExit, write_launch_record
from ddp_repro.trace.layout import LaunchFolder

POLL_S = 0.05
TEARDOWN_S = 15.0  # gloo with DDP can hang in teardown (PyTorch 2.13); all is on disk by then
STACKS_S = 0.5  # for faulthandler to write the stacks of a hung rank


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """One launch: the command of each of its ``nproc`` ranks, their environment, and how long a step may take (s)."""

    folder: LaunchFolder
    argv: Sequence[str]
    nproc: int
    environ: Mapping[str, str]
    timeout_s: float
    grace_s: float
    on_step: Callable[[int, int | None], None]


@dataclass(slots=True, kw_only=True)
class _Rank:
    process: subprocess.Popen[bytes]
    last_step: int | None = None
    observed: bool = False
    error: Message | None = None


@dataclass(slots=True, kw_only=True)
class _Ending:
    outcome: str = "finished"
    reason: str = ""
    hint: str = ""
    notes: dict[int, str] = field(default_factory=dict)


def run_world(plan: WorldPlan) -> LaunchRecord:
    """Run one world to its end and return how it ended; nothing of it is left running, whatever happens.

    Raises `Interrupted` after the world was ended and its record written.
    """
    world = _World(plan)
    began = time.monotonic()
    ending = _Ending()
    try:
        world.start()
        ending = world.watch()
    except Interrupted as stop:
        ending = _Ending(outcome="interrupted", reason=f"the driver got {stop.signal_name}")
        raise
    finally:
        world.end()
        record = world.record(ending, time.monotonic() - began)
        write_launch_record(plan.folder, record)
    return record


class _World:
    """The processes of one launch and what they said so far."""

    def __init__(self, plan: WorldPlan) -> None:
        self._plan = plan
        self._mark = uuid.uuid4().hex
        self._ranks: list[_Rank] = []
        self._told_errors: list[int] = []  # ranks in the order in which they told the driver of an error
        self._reader = LineReader()
        self._planned: int | None = None
        self._read_fd, self._write_fd = os.pipe()
        self._progress_at = time.monotonic()

    def start(self) -> None:
        """Start every rank; the port is held until all were started and the first event came."""
        os.set_blocking(self._read_fd, False)
        with reserved_port() as port:
            for rank in range(self._plan.nproc):
                self._ranks.append(_Rank(process=start(self._command(rank, port), self._write_fd)))
            os.close(self._write_fd)
            self._write_fd = -1
            self._await_first_event()

    def watch(self) -> _Ending:
        """Wait until the world ended or must be ended, and say how."""
        while True:
            self._pump(POLL_S)
            ending = self._failed() or self._hung() or self._finished()
            if ending is not None:
                return ending

    def end(self) -> None:
        """End every process of this world and close the pipe."""
        end_world([rank.process for rank in self._ranks], self._mark)
        with suppress(OSError):
            self._pump(0.0)
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)

    def record(self, ending: _Ending, seconds: float) -> LaunchRecord:
        """Return the launch's record."""
        exits = [
            RankExit(
                rank=number,
                exit_code=rank.process.returncode,
                last_step=rank.last_step,
                note=ending.notes.get(number, ""),
            )
            for number, rank in enumerate(self._ranks)
        ]
        return LaunchRecord(
            launch=self._plan.folder.index,
            world_size=self._plan.nproc,
            outcome=ending.outcome,
            reason=ending.reason,
            ranks=exits,
            seconds=round(seconds, 3),
        )

    def _command(self, rank: int, port: int) -> RankCommand:
        number, size = str(rank), str(self._plan.nproc)
        environ = {
            **self._plan.environ,
            "RANK": number,
            "LOCAL_RANK": number,
            "GROUP_RANK": "0",
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            VARIABLE: str(self._write_fd),
            MARK: self._mark,
        }
        return RankCommand(argv=self._plan.argv, environ=environ, log=self._plan.folder.log(rank))

    def _await_first_event(self) -> None:
        while not any(rank.last_step is not None or rank.error for rank in self._ranks):
            self._pump(POLL_S)
            if self._hung() or any(rank.process.poll() is not None for rank in self._ranks):
                return

    def _pump(self, wait_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            ready = selector.select(wait_s)
        chunk = os.read(self._read_fd, 1 << 16) if ready else b""
        if ready and not chunk:  # every writer is gone: only the exit codes are left to wait for
            time.sleep(wait_s)
        for message in self._reader.feed(chunk):
            self._take(message)

    def _take(self, message: Message) -> None:
        rank = self._ranks[message.rank]
        self._progress_at = time.monotonic()
        if message.event == "error":
            rank.error = message
            self._told_errors.append(message.rank)
        elif message.event == "observed":
            rank.observed = True
        elif message.event == "planned":
            self._planned = message.step
        else:
            rank.last_step = message.step
            if message.rank == 0 and message.event == "step":
                self._plan.on_step(message.step, self._planned)

    def _failed(self) -> _Ending | None:
        if not any(self._is_broken(rank) for rank in self._ranks):
            return None
        self._pump(0.0)  # what a rank said just before it left may still lie in the pipe
        broken = [number for number, rank in enumerate(self._ranks) if self._is_broken(rank)]
        if not broken:
            return None
        deadline = time.monotonic() + self._plan.grace_s
        while time.monotonic() < deadline and any(rank.process.poll() is None for rank in self._ranks):
            self._pump(POLL_S)
        return _Ending(outcome="failed", reason=self._failure(self._origin(broken)), notes=self._exit_notes())

    def _origin(self, broken: list[int]) -> int:
        """Return the rank that failed first: the others only lost their connection to it.

        A rank that was killed says nothing; of those that say something, the first one did before it closed its
        connections.
        """
        killed = [number for number in broken if (self._ranks[number].process.returncode or 0) < 0]
        silent = [number for number in killed if self._ranks[number].error is None]
        return next(iter([*silent, *self._told_errors, *broken]))

    @staticmethod
    def _is_broken(rank: _Rank) -> bool:
        code = rank.process.poll()
        return code is not None and not (code == 0 and rank.observed)

    def _failure(self, number: int) -> str:
        rank = self._ranks[number]
        if rank.error is not None:
            return f"rank {number}: {rank.error.text} {rank.error.hint}".strip()
        how = exit_text(rank.process.returncode)
        if rank.process.returncode == 0:
            how = "left with exit code 0 before its training ended"
        return f"rank {number} after {rank.last_step or 0} steps: {how}; see {self._plan.folder.log(number)}"

    def _exit_notes(self) -> dict[int, str]:
        return {number: exit_text(rank.process.poll()) for number, rank in enumerate(self._ranks)}

    def _hung(self) -> _Ending | None:
        if time.monotonic() - self._progress_at <= self._plan.timeout_s:
            return None
        waiting = [number for number, rank in enumerate(self._ranks) if rank.process.poll() is None]
        for number in waiting:
            with suppress(ProcessLookupError):
                os.kill(self._ranks[number].process.pid, signal.SIGUSR1)
        time.sleep(STACKS_S)
        steps = ", ".join(f"rank {number}: {self._ranks[number].last_step or 0}" for number in waiting)
        reason = (
            f"no step was completed for {self._plan.timeout_s:g} s (steps done: {steps}); the stacks of its ranks are "
            f"in rank-<r>.log under {self._plan.folder.path}. If a step takes longer, raise launcher.timeout_s"
        )
        return _Ending(outcome="hung", reason=reason)

    def _finished(self) -> _Ending | None:
        if not all(rank.observed for rank in self._ranks):
            return None
        deadline = time.monotonic() + TEARDOWN_S
        while time.monotonic() < deadline:
            self._pump(POLL_S)
            if self._failed_after_end():
                return self._failed_after_end()
            if all(rank.process.poll() == 0 for rank in self._ranks):
                return _Ending()
        late = [number for number, rank in enumerate(self._ranks) if rank.process.poll() is None]
        note = f"ended by the driver: still in teardown {TEARDOWN_S:g} s after its last observation"
        return _Ending(notes=dict.fromkeys(late, note))

    def _failed_after_end(self) -> _Ending | None:
        codes = [rank.process.poll() for rank in self._ranks]
        return self._failed() if any(code not in (None, 0) for code in codes) else None
