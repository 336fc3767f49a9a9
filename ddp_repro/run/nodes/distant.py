"""The ranks of one world that other nodes run, as driver 0 sees them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ddp_repro.run.nodes.frames import Frame
from ddp_repro.run.nodes.meeting import Guest
from ddp_repro.run.progress import Message
from ddp_repro.run.rank_state import RankState

_END_S: Final = 15.0  # for the other nodes to end every process of a world


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """What another node needs to know to start its ranks: the run's folder, the launch's number, its configuration."""

    run: str
    launch: int
    config: str
    text: str


@dataclass(slots=True, kw_only=True)
class DistantProcess:
    """A rank's process on another node: what was told of it so far."""

    guest: Guest
    rank: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code as far as it is known."""
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Have its driver send it a signal."""
        self.guest.link.send({"do": "signal", "rank": self.rank, "number": int(sig)})


@dataclass(slots=True, kw_only=True)
class DistantShare:
    """All nodes' ranks of one world but for this node's; the messages of each node come in the order of its own."""

    guests: Sequence[Guest]
    here: str
    order: LaunchOrder
    nproc: int
    _processes: dict[int, DistantProcess] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)
    _problem: str = ""
    _mark: str = ""
    _released: bool = False
    _killed: bool = False

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.guests) + 1

    @property
    def address(self) -> str:
        """Return the address of this node at which the others reach it."""
        return self.guests[0].link.own_address

    def start(self, mark: str, port: int) -> list[RankState]:
        """Have the other nodes start their ranks."""
        states = []
        self._mark = mark
        for guest in self.guests:
            order = {"run": self.order.run, "launch": self.order.launch, "config": self.order.config}
            guest.link.send({"do": "launch", **order, "text": self.order.text, "mark": mark, "port": port})
            for rank in range(guest.node * self.nproc, (guest.node + 1) * self.nproc):
                self._processes[rank] = DistantProcess(guest=guest, rank=rank)
                states.append(RankState(process=self._processes[rank], where=guest.called))
        return states

    def read(self) -> list[Message]:
        """Return what the ranks said, and take note of those that ended."""
        return [message for guest in self.guests for frame in guest.link.take() for message in self._take(guest, frame)]

    def lost(self) -> str:
        """Return why a node can take no more part, empty where all can."""
        lost = (f"{guest.called} was lost: {guest.link.lost}" for guest in self.guests if guest.link.lost)
        return self._problem or next(lost, "")

    def release(self) -> None:
        """Let the ranks go that wait for each other to have been observed."""
        if not self._released:
            self._released = True
            self._tell("release")

    def kill(self) -> None:
        """Have the other nodes end their ranks."""
        if not self._killed:
            self._killed = True
            self._tell("end")

    def end(self) -> list[Message]:
        """Wait until every process of this world is gone from the other nodes, and return what was still said."""
        self.kill()
        messages: list[Message] = []
        deadline = time.monotonic() + _END_S
        while not self._is_ended() and time.monotonic() < deadline:
            messages += self.read()
            time.sleep(0.01)
        return [*messages, *self.read()]

    def _is_ended(self) -> bool:
        return all(guest.link.lost or guest.node in self._ended for guest in self.guests)

    def _tell(self, order: str) -> None:
        for guest in self.guests:
            guest.link.send({"do": order})

    def _take(self, guest: Guest, frame: Frame) -> list[Message]:
        says = frame.says
        for end in ("stopped", "problem"):
            if end in says:
                self._problem = self._problem or f"{guest.called}: {says[end]}"
        if says.get("mark") != self._mark:  # of an earlier world
            return []
        for rank, code in says.get("exits", {}).items():
            process = self._processes.get(int(rank))
            if process is not None and process.guest is guest:
                process.returncode = code
        if says.get("ended"):
            self._ended.add(guest.node)
        return [_message(one) for one in says.get("ranks", [])]


def _message(told: dict[str, Any]) -> Message:
    return Message(
        rank=int(told["rank"]),
        event=told["event"],
        step=int(told["step"]),
        text=str(told["text"]),
        hint=str(told["hint"]),
    )
