"""What a command is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddp_repro.errors import ExitCode
from ddp_repro.run.driver import Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command's name, the dataclass of its configuration, and what it does; the function returns an exit code.

    One that ``spans_nodes`` can be started on several nodes by torchrun, one driver on each.
    """

    name: str
    schema: type[Any]
    run: Callable[[Any, Invocation], ExitCode]
    spans_nodes: bool = False
