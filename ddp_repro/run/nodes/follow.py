"""What the driver of another node does: start its ranks as driver 0 says, tell of them, send what they wrote."""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ddp_repro.config import RecordConfig, load_record_config
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch_environment import launch_environment
from ddp_repro.run.nodes.alike import node_identity
from ddp_repro.run.nodes.files import held_files, piece_of
from ddp_repro.run.nodes.folders import RunFolders
from ddp_repro.run.nodes.link import Link
from ddp_repro.run.nodes.meeting import reach
from ddp_repro.run.nodes.own_name import OwnName, own_name
from ddp_repro.run.nodes.place import NodePlace, version
from ddp_repro.run.processes import kill
from ddp_repro.run.rank_command import rank_argv
from ddp_repro.run.share import Share, ShareCommand, Site

POLL_S: Final = 0.05
_EXCUSE_S: Final = 10.0


def follow(place: NodePlace, config: RecordConfig, invocation: Invocation) -> ExitCode:
    """Do what driver 0 says until it says how all end, and return that code.

    Raises ReproError where driver 0 is lost, and `Interrupted`, after it was told; nothing is left running.
    """
    names: list[OwnName] = []

    def hello(address: str) -> dict[str, Any]:
        names.append(own_name(address, config, os.environ))
        return {
            "host": socket.gethostname(),
            "version": version(),
            "command": [invocation.command, *invocation.overrides],
            "identity": node_identity(config, os.environ),
            "name": asdict(names[0]),
        }

    link = reach(place, hello, config.launcher.timeout_s)
    root = Path(config.output.dir or config.output.root)
    driver = Follower(place=place, link=link, name=names[0], folders=RunFolders(root, place.node))
    try:
        return driver.obey()
    except Interrupted as stop:
        driver.tell_stopped(stop)
        raise
    finally:
        link.close()
        for kept in driver.folders.close():
            sys.stderr.write(f"{place.called}: what its ranks wrote was not sent; it stays in {kept}\n")


def excuse(place: NodePlace, error: ReproError) -> None:
    """Tell driver 0 why this one does not come, where it can be told."""
    told = {"host": socket.gethostname(), "failed": str(error), "hint": error.hint}
    with suppress(ReproError):
        reach(place, lambda _: told, _EXCUSE_S).close()


@dataclass(slots=True, kw_only=True)
class Follower:
    """The driver of another node than the first, once it has met driver 0."""

    place: NodePlace
    link: Link
    name: OwnName
    folders: RunFolders
    _share: Share | None = None
    _told: set[int] = field(default_factory=set)

    def obey(self) -> ExitCode:
        """Do what driver 0 says until it says how all end, and return that code; raises ReproError where it is lost."""
        while True:
            frame = self.link.wait(1.0)
            if frame is None:
                self._refuse_lost()
                continue
            order = frame.says
            if order.get("do") == "finish":
                return ExitCode(order["code"])
            try:
                self._do(order)
            except OSError as error:
                self.link.send({"problem": f"{error.filename or 'a folder'}: {error.strerror}"})
            except ReproError as error:
                self._refuse_lost()
                self.link.send({"problem": str(error)})

    def tell_stopped(self, stop: Interrupted) -> None:
        """Tell driver 0 that this driver was told to stop."""
        self.link.send({"stopped": f"its driver got {stop.signal_name}"})

    def _refuse_lost(self) -> None:
        if self.link.lost:
            raise ReproError(
                f"node 0 ({self.link.address}) was lost: {self.link.lost}.",
                hint="Every process of this node was ended. What became of node 0 stands in its own output.",
            )

    def _do(self, order: dict[str, Any]) -> None:
        match order.get("do"):
            case "place":
                self.link.send({"shared": self.folders.place(order)})
            case "launch":
                self._launch(order)
            case "files":
                files = held_files(self.folders.launch(order).path, with_digest=bool(order["digest"]))
                self.link.send({"files": [asdict(held) for held in files]})
            case "piece":
                file = self.folders.launch(order).path / Path(str(order["name"])).name
                self.link.send({"piece": order["offset"]}, piece_of(file, int(order["offset"])))
            case "drop":
                self.folders.drop(order)

    def _launch(self, order: dict[str, Any]) -> None:
        """Run this node's ranks of one world to their end."""
        config_file, folder = self.folders.config(order), self.folders.launch(order)
        config = load_record_config(config_file)
        mark = str(order["mark"])
        command = ShareCommand(
            folder=folder,
            argv=rank_argv(folder, config_file),
            environ={**launch_environment(config, os.environ), **self.name.environment},
            nproc=config.nproc,
            mark=mark,
        )
        site = Site(node=self.place.node, nodes=self.place.nodes, address=self.link.address, port=int(order["port"]))
        share = Share(command)
        told = _Told(link=self.link, share=share, first=self.place.node * config.nproc, mark=mark)
        try:
            share.start(site)
            while not self.link.lost and not told.is_to_end(self.link):
                told.tell(share.read(POLL_S))
                share.reap()
        except Interrupted as stop:
            self.tell_stopped(stop)  # before its ranks are ended: driver 0 would take that for a failure of theirs
            raise
        finally:
            left = share.end()
        told.tell(left)
        self.link.send({"ended": True, "mark": mark})
        self._refuse_lost()


@dataclass(slots=True, kw_only=True)
class _Told:
    """What driver 0 was told of this node's ranks of one world; ``first`` is the number of the first of them."""

    link: Link
    share: Share
    first: int
    mark: str
    _exits: dict[int, int] = field(default_factory=dict)

    def tell(self, messages: Sequence[Any]) -> None:
        """Tell what ranks said, and how they ended."""
        exits = {}
        for local_rank, process in enumerate(self.share.processes):
            rank, code = self.first + local_rank, process.poll()
            if code is not None and rank not in self._exits:
                exits[rank] = self._exits[rank] = code
        if messages or exits:
            ranks = [asdict(message) for message in messages]
            self.link.send({"ranks": ranks, "exits": exits, "mark": self.mark})

    def is_to_end(self, link: Link) -> bool:
        """Do what driver 0 says meanwhile, and tell whether the world is to end."""
        for frame in link.take():
            match frame.says.get("do"):
                case "release":
                    self.share.release()
                case "signal":
                    rank = int(frame.says["rank"]) - self.first
                    self.share.processes[rank].send_signal(int(frame.says["number"]))
                case "end":
                    kill(self.share.processes)
                    return True
        return False
