"""Starts one world of ranks, watches it, and ends it whole."""

import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ddp_repro.run import rank_state
from ddp_repro.run.driver import Interrupted
from ddp_repro.run.elsewhere import Elsewhere
from ddp_repro.run.following import Following
from ddp_repro.run.origin import origin, origin_on_nodes
from ddp_repro.run.ports import reserved_port
from ddp_repro.run.processes import exit_text, kill
from ddp_repro.run.progress import Message
from ddp_repro.run.rank_state import Ending, RankState, ended_before, parted_ending
from ddp_repro.run.share import Share, ShareCommand, Site
from ddp_repro.trace.launch import LaunchRecord, RankExit, write_launch_record
from ddp_repro.trace.layout import LaunchFolder

POLL_S = 0.05
STARTUP_S = 120.0  # at least, for interpreters that import torch on a machine with other work
STACKS_S = 0.5  # for faulthandler to write the stacks of a hung rank


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """One launch: the command of each of its ``nproc`` ranks a node, their environment, how long a step may take (s).

    Until all ranks have started, ``timeout_s`` is at least ``STARTUP_S``. With ``kill_at`` the whole world is killed
    once rank 0 has done so many optimizer steps. ``following`` reads its traces, and may have it ended early.
    ``elsewhere`` are its ranks on other nodes, where there are any.
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
    elsewhere: Elsewhere | None = None

    @property
    def world_size(self) -> int:
        """Return the number of ranks on all nodes."""
        return self.nproc * (self.elsewhere.nodes if self.elsewhere is not None else 1)


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
        self._here = Share(
            ShareCommand(folder=plan.folder, argv=plan.argv, environ=plan.environ, nproc=plan.nproc, mark=self._mark)
        )
        self._elsewhere = plan.elsewhere
        self._ranks: list[RankState] = []
        self._told_errors: list[int] = []  # ranks in the order in which they told the driver of an error
        self._planned: int | None = None
        self._teardown_at: float | None = None
        self._held = ExitStack()
        self._progress_at = time.monotonic()

    def start(self) -> None:
        """Start every rank; the port is held as long as the world lasts, since a script joins when it likes."""
        port = self._held.enter_context(reserved_port())
        self._ranks += self._start_on_nodes(port, self._elsewhere) if self._elsewhere is not None else self._start(port)
        if self._plan.following is not None:
            self._held.enter_context(self._plan.following)

    def _start(self, port: int) -> list[RankState]:
        self._here.start(Site(port=port))
        return [RankState(process=process) for process in self._here.processes]

    def _start_on_nodes(self, port: int, others: Elsewhere) -> list[RankState]:
        distant = others.start(self._mark, port)
        self._here.start(Site(port=port, address=others.address, nodes=others.nodes))
        return [*(RankState(process=process, where=others.here) for process in self._here.processes), *distant]

    def watch(self) -> Ending:
        """Wait until the world ended or must be ended, and say how."""
        while True:
            self._pump(POLL_S)
            self._here.reap()
            ending = self._lost() or self._killed() or self._failed() or self._hung() or self._finished()
            ending = ending or self._parted()
            if ending is not None:
                return ending

    def end(self) -> None:
        """End every process of this world, close the pipes and let go of the port."""
        if self._elsewhere is not None:
            self._elsewhere.kill()
        left = self._here.end()
        if self._elsewhere is not None:
            left += self._elsewhere.end()
        self._held.close()
        for message in left:
            self._take(message)

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
            world_size=self._plan.world_size,
            outcome=ending.outcome,
            reason=ending.reason,
            ranks=exits,
            seconds=round(seconds, 3),
            id=self._mark,
            parting=ending.parting,
        )

    def _pump(self, wait_s: float) -> None:
        messages = self._here.read(wait_s)
        if self._elsewhere is not None:
            messages += self._elsewhere.read()
        for message in messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        self._progress_at = time.monotonic()
        if not 0 <= message.rank < len(self._ranks):
            return
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

    def _lost(self) -> Ending | None:
        """Return the ending where another node can take no more part."""
        reason = self._elsewhere.lost() if self._elsewhere is not None else ""
        return Ending(outcome="failed", reason=reason) if reason else None

    def _killed(self) -> Ending | None:
        """Kill every rank, where the world has come to the step at which it is to be killed."""
        done, limit = self._ranks[0].last_step or 0, self._plan.kill_at
        if limit is None or done < limit:
            return None
        kill(self._here.processes)
        if self._elsewhere is not None:
            self._elsewhere.kill()
        return Ending(outcome="killed", reason=f"as planned, once rank 0 had done {done} steps")

    def _failed(self) -> Ending | None:
        if not any(rank.is_broken or rank.is_stuck_on_its_way_out for rank in self._ranks):
            return None
        self._pump(0.0)  # what a rank said just before it left may still lie in the pipe
        broken = [number for number, rank in enumerate(self._ranks) if rank.is_broken or rank.is_stuck_on_its_way_out]
        if not broken:
            return None
        deadline = time.monotonic() + self._plan.grace_s
        while not (lost := self._lost()) and time.monotonic() < deadline and any(one.is_running for one in self._ranks):
            self._pump(POLL_S)
        if lost is not None:
            return lost
        told = self._told_errors
        first = origin(self._ranks, broken, told) if self._elsewhere is None else origin_on_nodes(self._ranks, told)
        reason = self._ranks[first].failure(first, self._plan.folder.log(first))
        notes = {number: exit_text(rank.process.poll()) for number, rank in enumerate(self._ranks)}
        return Ending(outcome="failed", reason=ended_before(self._ranks, [first]) + reason, notes=notes)

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
            self._ranks[number].process.send_signal(signal.SIGUSR1)
        time.sleep(STACKS_S)
        steps = ", ".join(f"rank {number}: {self._ranks[number].last_step or 0}" for number in waiting)
        told = f"no step was completed for {limit_s:g} s (steps done: {steps})"
        if late:
            told = (
                f"{', '.join(self._ranks[number].called(number) for number in late)} did not start within {limit_s:g} s"
            )
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
        self._here.release()
        if self._elsewhere is not None:
            self._elsewhere.release()
