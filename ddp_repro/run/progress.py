"""What a rank tells its driver while it runs: one JSON line an event, over a pipe that never blocks the rank."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Literal

VARIABLE = "DDP_REPRO_PROGRESS_FD"
PIPE_BUF = 4096  # Linux: a write of this size at most is all or nothing
_HINT_AT_MOST = 250  # characters; each takes up to 12 bytes as JSON
Event = Literal["started", "planned", "step", "observed", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One event of a rank; ``step`` counts the optimizer steps done, with ``planned`` those of the whole run."""

    rank: int
    event: Event
    step: int = 0
    text: str = ""
    hint: str = ""


class ProgressPipe:
    """The rank's end; without a driver (``VARIABLE`` unset) it says nothing."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        number = os.environ.pop(VARIABLE, "")
        self._fd = int(number) if number else None
        if self._fd is not None:
            os.set_inheritable(self._fd, False)
            os.set_blocking(self._fd, False)

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
