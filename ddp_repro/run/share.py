"""The ranks of one world that run on this node: started, heard, released and ended together."""

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ddp_repro.run.driver import adopt_orphans
from ddp_repro.run.processes import MARK, RankCommand, children, end_world, reap_orphans, start
from ddp_repro.run.progress import RELEASE_VARIABLE, VARIABLE, LineReader, Message
from ddp_repro.trace.layout import LaunchFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the ranks of one node stand in their world: ``node`` of ``nodes``, and where rank 0 keeps the store."""

    port: int
    address: str = "127.0.0.1"
    node: int = 0
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCommand:
    """What is started here: the command of each of ``nproc`` ranks, their environment, the mark of their world."""

    folder: LaunchFolder
    argv: Sequence[str]
    environ: Mapping[str, str]
    nproc: int
    mark: str


class Share:
    """The processes of one world on this node, and the pipes that join them to their driver."""

    def __init__(self, command: ShareCommand) -> None:
        self._command = command
        adopt_orphans()
        self._others = children()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._reader = LineReader()
        self._read_fd, self._write_fd = os.pipe()
        self._release_fds = list(os.pipe())

    def start(self, site: Site) -> None:
        """Start every rank."""
        os.set_blocking(self._read_fd, False)
        for local_rank in range(self._command.nproc):
            command = self._rank_command(local_rank, site)
            self.processes.append(start(command, [self._write_fd, self._release_fds[0]]))
        os.close(self._write_fd)
        self._write_fd = -1

    def read(self, wait_s: float) -> list[Message]:
        """Return what the ranks said; wait ``wait_s`` at most for it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            ready = selector.select(wait_s)
        chunk = os.read(self._read_fd, 1 << 16) if ready else b""
        if ready and not chunk:  # every writer is gone: only the exit codes are left to wait for
            time.sleep(wait_s)
        return self._reader.feed(chunk)

    def reap(self) -> None:
        """Take leave of processes that this one adopted from its ranks."""
        reap_orphans([child.pid for child in (*self._others, *self.processes)])

    def release(self) -> None:
        """Let the ranks go that wait for each other to have been observed."""
        if self._release_fds[1] >= 0:
            os.close(self._release_fds[1])
            self._release_fds[1] = -1

    def end(self) -> list[Message]:
        """End every process, close the pipes, and return what was still said."""
        end_world(self.processes, self._command.mark, self._others)
        left: list[Message] = []
        with suppress(OSError):
            left = self.read(0.0)
        for fd in (self._read_fd, self._write_fd, *self._release_fds):
            if fd >= 0:
                os.close(fd)
        return left

    def _rank_command(self, local_rank: int, site: Site) -> RankCommand:
        rank = site.node * self._command.nproc + local_rank
        environ = {
            **self._command.environ,
            **_place(rank, local_rank, self._command.nproc, site),
            VARIABLE: str(self._write_fd),
            RELEASE_VARIABLE: str(self._release_fds[0]),
            MARK: self._command.mark,
        }
        return RankCommand(argv=self._command.argv, environ=environ, log=self._command.folder.log(rank))


def _place(rank: int, local_rank: int, nproc: int, site: Site) -> dict[str, str]:
    """Return the variables that tell a rank its place, as torchrun names them."""
    place = {
        "RANK": str(rank),
        "ROLE_RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(site.node),
        "WORLD_SIZE": str(site.nodes * nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": site.address,
        "MASTER_PORT": str(site.port),
    }
    if site.nodes > 1:
        several = {"GROUP_WORLD_SIZE": site.nodes, "ROLE_WORLD_SIZE": site.nodes * nproc, "NODE_RANK": site.node}
        place |= {name: str(value) for name, value in several.items()}
    return place
