"""How an exception that ended a rank is told: in one line, and where PyTorch's own words mislead, in better ones."""

import re
from dataclasses import dataclass
from typing import Final

UNUSED_PARAMETERS: Final = "Expected to have finished reduction in the prior iteration"

_AFTERMATH: Final = re.compile(
    r"gloo.transport|connection (was )?(likely )?(closed|reset) by|socket closed|broken pipe|TCPStore|"
    r"remote process (has )?(exited|terminated)|NCCL communicator was aborted",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What went wrong, and what to do next (empty: the log says more)."""

    text: str
    hint: str = ""


def told(error: BaseException) -> Told:
    """Return what is told of ``error``; its traceback stands in the rank's log."""
    if UNUSED_PARAMETERS in _words(error):
        return Told(
            text="DistributedDataParallel waits for gradients of parameters (or outputs) that took no part in the loss",
            hint="set find_unused_parameters=True (ddp.find_unused_parameters=true without a script) or leave them out",
        )
    return Told(text=in_one_line(error))


def is_aftermath(text: str) -> bool:
    """Tell whether this is what a rank says that lost its connection to another one, which failed before it."""
    return _AFTERMATH.search(text) is not None


def in_one_line(error: BaseException) -> str:
    """Return an exception in one line; of one that quotes a worker's traceback, the worker's own last line."""
    lines = [line for line in _words(error).splitlines() if line.strip()]
    if "Traceback (most recent call last)" in _words(error):
        return lines[-1]
    return ": ".join([type(error).__name__, *lines[:1]])


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  an exception of a script, whose own __str__ fails
        return ""
