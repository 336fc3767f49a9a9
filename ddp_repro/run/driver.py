"""The driver's own place in the world: how it was invoked, what ends it, and that there is only one a node."""

import ctypes
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from ddp_repro.errors import ReproError

if TYPE_CHECKING:
    from ddp_repro.config import RecordConfig
    from ddp_repro.run.nodes.lead import Nodes

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36

_FOLDER = ("output.dir", "output.overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How a person called a command: its name and the overrides as typed.

    ``twins`` are the configurations of the variants that the command's ``twins`` or ``candidate`` name, composed as
    the command's own. ``compose`` composes the command's own with further overrides, which win; it raises
    ``ReproError`` for what Hydra cannot read. ``nodes`` are all nodes, where there are several and this is the driver
    that decides.
    """

    command: str
    overrides: tuple[str, ...]
    twins: tuple["RecordConfig", ...] = ()
    compose: Callable[[Sequence[str]], Any] | None = None
    nodes: "Nodes | None" = None

    @property
    def text(self) -> str:
        """Return the command line that calls it again."""
        return self.with_overrides()

    def again(self, *more: str) -> str:
        """Return the command line that makes another run of the same in another folder, with further overrides."""
        kept = tuple(one for one in self.overrides if one.lstrip("+").partition("=")[0] not in _FOLDER)
        return replace(self, overrides=kept).with_overrides(*more)

    def with_overrides(self, *more: str) -> str:
        """Return the command line with further overrides, which win over earlier ones of the same key."""
        several = f"--nnodes {self.nodes.count} --nproc-per-node 1 … " if self.nodes is not None else ""
        return f"torchrun {several}-m ddp_repro.{self.command} {shlex.join((*self.overrides, *more))}".rstrip()


class Interrupted(BaseException):
    """The driver was told to stop; a BaseException, so that nothing takes it for a failure and goes on."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signal_name = signal.Signals(signum).name


def catch_signals(environ: Mapping[str, str]) -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`, once: later ones must not disturb the cleaning up.

    Under torchrun the driver also ends when its agent was killed without a chance to say so.
    """

    def stop(signum: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted(signum)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if "TORCHELASTIC_RUN_ID" in environ:
        end_with_parent(signal.SIGTERM)


def was_interrupted() -> bool:
    """Tell whether this process was told to stop, after `catch_signals`."""
    return signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def end_with_parent(signum: int) -> None:
    """Have the kernel send ``signum`` to this process when its parent dies (Linux; elsewhere nothing happens)."""
    _prctl(PR_SET_PDEATHSIG, signum)


def adopt_orphans() -> None:
    """Have processes whose parents die become children of this one, if they descend from it (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def refuse_several_drivers(environ: Mapping[str, str]) -> None:
    """Raise ReproError where torchrun started several drivers on this node.

    Of all processes only the first speaks; the others end silently with the same code.
    """
    here, nodes = environ.get("LOCAL_WORLD_SIZE", "1"), environ.get("GROUP_WORLD_SIZE", "1")
    if int(here) == 1:
        return
    if (environ.get("LOCAL_RANK", "0"), environ.get("GROUP_RANK", "0")) != ("0", "0"):
        sys.exit(2)
    several = f" --nnodes {nodes} --nproc-per-node 1 …" if int(nodes) > 1 else ""
    raise ReproError(
        f"torchrun started {here} drivers on this node; one is needed.",
        hint="Call torchrun without --nproc-per-node and set the world size by nproc: "
        f"torchrun{several} -m ddp_repro.check nproc={here}",
    )
