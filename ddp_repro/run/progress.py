"""What a rank tells its driver while it runs: one JSON line an event, over a pipe that never blocks the rank."""

import json
import os
import select
import weakref
from dataclasses import asdict, dataclass
from typing import Literal

VARIABLE = "DDP_REPRO_PROGRESS_FD"
RELEASE_VARIABLE = "DDP_REPRO_RELEASE_FD"
PIPE_BUF = 4096  # Linux: a write of this size at most is all or nothing
_HINT_AT_MOST = 250  # characters; each takes up to 12 bytes as JSON
Event = Literal["started", "planned", "step", "size", "leaving", "left", "observed", "error"]
"""``observed``: all that is to be seen of this rank is on disk. ``leaving`` and ``left``: so it is before and after it
destroys its process group, which can hang; the text of ``leaving`` is the exception that made it leave, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One event of a rank; ``step`` counts the optimizer steps done, with ``planned`` those of the whole run.

    With ``size`` it is the number of bytes that the modules and operators of a step take on disk.
    """

    rank: int
    event: Event
    step: int = 0
    text: str = ""
    hint: str = ""


class ProgressPipe:
    """The rank's end; without a driver (``VARIABLE`` unset) it says nothing."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._fd = _inherited(VARIABLE)
        self._release_fd = _inherited(RELEASE_VARIABLE)
        if self._fd is not None:
            os.set_blocking(self._fd, False)
        _pipes.add(self)

    def send(self, event: Event, *, step: int = 0, text: str = "", hint: str = "") -> None:
        """Write one line of at most PIPE_BUF bytes, so that the lines of several ranks do not mix."""
        if self._fd is None:
            return
        line = encode(Message(rank=self._rank, event=event, step=step, text=text, hint=hint[:_HINT_AT_MOST]))
        while len(line) > PIPE_BUF:
            text = text[: len(text) // 2]
            line = encode(Message(rank=self._rank, event=event, step=step, text=f"{text}…", hint=hint[:_HINT_AT_MOST]))
        try:
            os.write(self._fd, line)
        except OSError:  # the driver is gone or far behind: a rank must not fail or wait for that
            return

    def await_release(self, timeout_s: float) -> None:
        """Wait until the driver knows that every rank was observed, or until ``timeout_s`` has passed.

        A rank that leaves closes its connections, rank 0 the store as well, from which a slower one may still read.
        """
        if self._release_fd is not None:
            select.select([self._release_fd], [], [], timeout_s)

    def silence(self) -> None:
        """Say nothing from now on: a forked child is not the rank."""
        for fd in (self._fd, self._release_fd):
            if fd is not None:
                os.close(fd)
        self._fd = self._release_fd = None


def _inherited(variable: str) -> int | None:
    """Return the descriptor that the driver left in ``variable``, kept from this process's own children."""
    number = os.environ.pop(variable, "")
    if not number:
        return None
    os.set_inheritable(int(number), False)
    return int(number)


_pipes: weakref.WeakSet[ProgressPipe] = weakref.WeakSet()


def _silence_in_child() -> None:
    for pipe in _pipes:
        pipe.silence()


os.register_at_fork(after_in_child=_silence_in_child)


def encode(message: Message) -> bytes:
    """Return the line for a message."""
    return json.dumps(asdict(message)).encode() + b"\n"


class LineReader:
    """The driver's end: turns what was read into messages, keeping an unfinished line for later."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Message]:
        """Return the messages completed by ``chunk``; lines that are none (a stray write) are dropped."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        messages = []
        for line in lines:
            try:
                messages.append(Message(**json.loads(line)))
            except (ValueError, TypeError):
                continue
        return messages
