"""What the driver knows of one rank, and how it tells the way in which it ended."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ddp_repro.run.processes import exit_text
from ddp_repro.run.progress import Message
from ddp_repro.trace.launch import PARTED, Parting

TEARDOWN_S = 15.0  # gloo with DDP can hang in teardown (PyTorch 2.13); all is on disk by then


class RankProcess(Protocol):
    """A rank's process, here or on another node: what is wanted of a `subprocess.Popen`."""

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, ``None`` while it runs."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""


@dataclass(slots=True, kw_only=True)
class Ending:
    """How a world ended; ``notes`` by rank."""

    outcome: str = "finished"
    reason: str = ""
    hint: str = ""
    notes: dict[int, str] = field(default_factory=dict)
    parting: Parting | None = None


@dataclass(slots=True, kw_only=True)
class RankState:
    """A rank's process and what it said so far.

    ``started``: it said something. ``closed``: all that is to be seen of it is on disk. ``leaving_since`` is when it
    began to destroy its process group (``time.monotonic``), ``None`` once it is through; ``leaving_for`` the exception
    that made it leave. ``where`` is the node that it runs on, where there are several: ``node 1 (h2)``.
    """

    process: RankProcess
    where: str = ""
    started: bool = False
    last_step: int | None = None
    observed: bool = False
    closed: bool = False
    leaving_since: float | None = None
    leaving_for: str = ""
    error: Message | None = None

    def take(self, message: Message) -> None:
        """Take note of what the rank said of itself."""
        self.started = True
        if message.event == "error":
            self.error = message
        elif message.event == "observed":
            self.observed = self.closed = True
        elif message.event == "leaving":
            self.closed = True
            self.leaving_since, self.leaving_for = time.monotonic(), message.text
        elif message.event == "left":
            self.leaving_since = None
        else:
            self.last_step = message.step

    @property
    def is_running(self) -> bool:
        """Tell whether its process is there."""
        return self.process.poll() is None

    @property
    def is_broken(self) -> bool:
        """Tell whether it is gone in another way than after a good end."""
        code = self.process.poll()
        return code is not None and not (code == 0 and self.closed)

    @property
    def is_in_teardown(self) -> bool:
        """Tell whether nothing is left for it to do but to end: its training is over, and so is what followed it."""
        return self.observed or self.leaving_since is not None or not self.is_running

    @property
    def is_stuck_on_its_way_out(self) -> bool:
        """Tell whether it left because of an exception and hangs where it destroys its process group."""
        since = self.leaving_since
        return bool(self.leaving_for) and since is not None and time.monotonic() - since > TEARDOWN_S

    def failure(self, number: int, log: Path) -> str:
        """Return what went wrong with this rank, of that number, in one sentence."""
        name = self.called(number)
        if self.error is not None:
            hint = self.error.hint or f"see {log}"
            return f"{name}: {self.error.text.rstrip('.')}{' ' if hint.startswith('(') else '; '}{hint}"
        if self.leaving_for:
            return f"{name} after {self.last_step or 0} steps: {self.leaving_for} (see {log})"
        how = exit_text(self.process.returncode)
        if self.process.returncode == 0:
            how = "left with exit code 0 before its training ended"
        return f"{name} after {self.last_step or 0} steps: {how}; see {log}"

    def called(self, number: int) -> str:
        """Return the name of this rank, of that number, with its node where there are several."""
        return f"rank {number} on {self.where}" if self.where else f"rank {number}"

    def late_note(self) -> str:
        """Return why the driver ended a rank whose observations were complete."""
        where = "in destroy_process_group" if self.leaving_since is not None else "in teardown"
        return f"ended by the driver: still {where} {TEARDOWN_S:g} s after its last observation"


def parted_ending(ranks: list[RankState], parting: Parting) -> Ending:
    """Return the ending of a world that is ended because of a difference."""
    step = "before step 0" if parting.step < 0 else f"step {parting.step}"
    on = f"{'rank' if len(parting.ranks) == 1 else 'ranks'} {', '.join(map(str, parting.ranks))}"
    where = ", ".join([step, on, parting.phase, parting.name])
    reason = (
        f"ended by the driver after {ranks[0].last_step or 0} steps (fail_fast), soon after its first difference from "
        f"launch {parting.reference}: {where}"
    )
    return Ending(outcome=PARTED, reason=reason, parting=parting)


def ended_before(ranks: list[RankState], others: list[int]) -> str:
    """Return which ranks had come to their end before ``others`` did not go on, as the beginning of a sentence."""
    through = [number for number, rank in enumerate(ranks) if rank.closed and not rank.leaving_for]
    told = [f"rank {number} ended after {ranks[number].last_step or 0} steps" for number in through]
    return f"{', '.join(told)}; then " if told and not set(through) & set(others) else ""
