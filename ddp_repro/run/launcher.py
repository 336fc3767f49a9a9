"""Starts one world of ranks, watches it, and ends it whole."""

import os
import selectors
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from ddp_repro.run import rank_state
from ddp_repro.run.driver import Interrupted, adopt_orphans
from ddp_repro.run.following import Following
from ddp_repro.run.ports import reserved_port
from ddp_repro.run.processes import MARK, RankCommand, children, end_world, exit_text, kill, reap_orphans, start
from ddp_repro.run.progress import RELEASE_VARIABLE, VARIABLE, LineReader, Message
from ddp_repro.run.rank_state import Ending, RankState, ended_before, parted_ending
from ddp_repro.trace.launch import LaunchRecord, RankExit, write_launch_record
from ddp_repro.trace.layout import LaunchFolder

POLL_S = 0.05
STARTUP_S = 120.0  # at least, for interpreters that import torch on a machine with other work
STACKS_S = 0.5  # for faulthandler to write the stacks of a hung rank


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """One launch: the command of each of its ``nproc`` ranks, their environment, and how long a step may take (s).

    Until all ranks have started, ``timeout_s`` is at least ``STARTUP_S``. With ``kill_at`` the whole world is killed
    once rank 0 has done so many optimizer steps. ``following`` reads its traces, and may have it ended early.
    """

    folder: LaunchFolder
    argv: Sequence[str]
    nproc: int
    environ: Mapping[str, str]
    timeout_s: float
    grace_s: float
    on_step: Callable[[int, int | None], None]
    on_size: Callable[[int, int | None], None] = lambda _size, _planned: None
    kill_at: int | None = None
    following: Following | None = None


def run_world(plan: WorldPlan) -> LaunchRecord:
    """Run one world to its end and return how it ended; nothing of it is left running, whatever happens.

    Raises `Interrupted` after the world was ended and its record written.
    """
    world = _World(plan)
    began = time.monotonic()
    ending = Ending()
    try:
        world.start()
        ending = world.watch()
    except Interrupted as stop:
        ending = Ending(outcome="interrupted", reason=f"the driver got {stop.signal_name}")
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
        adopt_orphans()
        self._others = children()
        self._ranks: list[RankState] = []
        self._told_errors: list[int] = []  # ranks in the order in which they told the driver of an error
        self._reader = LineReader()
        self._planned: int | None = None
        self._read_fd, self._write_fd = os.pipe()
        self._release_fds = list(os.pipe())
        self._teardown_at: float | None = None
        self._held = ExitStack()
        self._progress_at = time.monotonic()

    def start(self) -> None:
        """Start every rank; the port is held as long as the world lasts, since a script joins when it likes."""
        os.set_blocking(self._read_fd, False)
        port = self._held.enter_context(reserved_port())
        for rank in range(self._plan.nproc):
            process = start(self._command(rank, port), [self._write_fd, self._release_fds[0]])
            self._ranks.append(RankState(process=process))
        os.close(self._write_fd)
        self._write_fd = -1
        if self._plan.following is not None:
            self._held.enter_context(self._plan.following)

    def watch(self) -> Ending:
        """Wait until the world ended or must be ended, and say how."""
        while True:
            self._pump(POLL_S)
            reap_orphans([child.pid for child in (*self._others, *(rank.process for rank in self._ranks))])
            ending = self._killed() or self._failed() or self._hung() or self._finished() or self._parted()
            if ending is not None:
                return ending

    def end(self) -> None:
        """End every process of this world, close the pipes and let go of the port."""
        end_world([rank.process for rank in self._ranks], self._mark, self._others)
        self._held.close()
        with suppress(OSError):
            self._pump(0.0)
        for fd in (self._read_fd, self._write_fd, *self._release_fds):
            if fd >= 0:
                os.close(fd)

    def record(self, ending: Ending, seconds: float) -> LaunchRecord:
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
            id=self._mark,
            parting=ending.parting,
        )

    def _command(self, rank: int, port: int) -> RankCommand:
        number, size = str(rank), str(self._plan.nproc)
        environ = {
            **self._plan.environ,
            "RANK": number,
            "ROLE_RANK": number,
            "LOCAL_RANK": number,
            "GROUP_RANK": "0",
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            VARIABLE: str(self._write_fd),
            RELEASE_VARIABLE: str(self._release_fds[0]),
            MARK: self._mark,
        }
        return RankCommand(argv=self._plan.argv, environ=environ, log=self._plan.folder.log(rank))

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
        self._progress_at = time.monotonic()
        if message.event == "planned":
            self._planned = message.step
            return
        if message.event == "size":
            self._plan.on_size(message.step, self._planned)
            return
        self._ranks[message.rank].take(message)
        if message.event == "error":
            self._told_errors.append(message.rank)
        elif message.event == "step" and message.rank == 0:
            self._plan.on_step(message.step, self._planned)

    def _killed(self) -> Ending | None:
        """Kill every rank, where the world has come to the step at which it is to be killed."""
        done, limit = self._ranks[0].last_step or 0, self._plan.kill_at
        if limit is None or done < limit:
            return None
        kill([rank.process for rank in self._ranks])
        return Ending(outcome="killed", reason=f"as planned, once rank 0 had done {done} steps")

    def _failed(self) -> Ending | None:
        if not any(rank.is_broken or rank.is_stuck_on_its_way_out for rank in self._ranks):
            return None
        self._pump(0.0)  # what a rank said just before it left may still lie in the pipe
        broken = [number for number, rank in enumerate(self._ranks) if rank.is_broken or rank.is_stuck_on_its_way_out]
        if not broken:
            return None
        deadline = time.monotonic() + self._plan.grace_s
        while time.monotonic() < deadline and any(rank.is_running for rank in self._ranks):
            self._pump(POLL_S)
        origin = self._origin(broken)
        reason = self._ranks[origin].failure(origin, self._plan.folder.log(origin))
        notes = {number: exit_text(rank.process.poll()) for number, rank in enumerate(self._ranks)}
        return Ending(outcome="failed", reason=ended_before(self._ranks, [origin]) + reason, notes=notes)

    def _origin(self, broken: list[int]) -> int:
        """Return the rank that failed first: the others only lost their connection to it.

        A rank that was killed or left by ``os._exit`` says nothing; of those that say something, the first one did
        before it closed its connections.
        """
        gone = [number for number in broken if not self._ranks[number].is_running]
        silent = [number for number in gone if self._ranks[number].error is None]
        silent.sort(key=lambda number: (self._ranks[number].process.returncode or 0) >= 0)
        leaving = [number for number in broken if self._ranks[number].leaving_for]
        return next(iter([*silent, *leaving, *self._told_errors, *broken]))

    def _hung(self) -> Ending | None:
        late = [number for number, rank in enumerate(self._ranks) if not rank.started]
        limit_s = max(self._plan.timeout_s, STARTUP_S) if late else self._plan.timeout_s
        if time.monotonic() - self._progress_at <= limit_s:
            return None
        waiting = [number for number, rank in enumerate(self._ranks) if rank.is_running]
        if all(rank.closed for rank in self._ranks):
            note = f"ended by the driver: it did not end within {self._plan.timeout_s:g} s of its training"
            return Ending(notes=dict.fromkeys(waiting, note))
        for number in waiting:
            with suppress(ProcessLookupError):
                os.kill(self._ranks[number].process.pid, signal.SIGUSR1)
        time.sleep(STACKS_S)
        steps = ", ".join(f"rank {number}: {self._ranks[number].last_step or 0}" for number in waiting)
        told = f"no step was completed for {limit_s:g} s (steps done: {steps})"
        if late:
            told = f"{', '.join(f'rank {number}' for number in late)} did not start within {limit_s:g} s"
        reason = (
            f"{ended_before(self._ranks, [])}{told}; the stacks of its ranks are in rank-<r>.log under "
            f"{self._plan.folder.path}. If a step takes longer, raise launcher.timeout_s"
        )
        return Ending(outcome="hung", reason=reason)

    def _finished(self) -> Ending | None:
        """Return the ending once every rank is through, or stays in its teardown for too long."""
        if not all(rank.closed for rank in self._ranks):
            return None
        self._release()
        if all(rank.process.poll() == 0 for rank in self._ranks):
            return Ending()
        if not all(rank.is_in_teardown for rank in self._ranks):
            self._teardown_at = None
            return None
        self._teardown_at = self._teardown_at or time.monotonic()
        if time.monotonic() - self._teardown_at <= rank_state.TEARDOWN_S:
            return None
        return Ending(notes={n: rank.late_note() for n, rank in enumerate(self._ranks) if rank.is_running})

    def _parted(self) -> Ending | None:
        """Return the ending where enough is known of a world to end it, and all of its ranks are still training."""
        found = self._plan.following and self._plan.following.parting()
        return parted_ending(self._ranks, found) if found and not any(rank.closed for rank in self._ranks) else None

    def _release(self) -> None:
        """Let the ranks go that wait for each other to have been observed."""
        if self._release_fds[1] >= 0:
            os.close(self._release_fds[1])
            self._release_fds[1] = -1
