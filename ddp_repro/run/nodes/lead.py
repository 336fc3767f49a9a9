"""What driver 0 does with the drivers of other nodes: has them start their ranks, takes their traces, lets them go."""

import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ddp_repro.config import RecordConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.run.driver import Invocation
from ddp_repro.run.nodes.alike import node_identity, refuse_unlike
from ddp_repro.run.nodes.distant import DistantShare, LaunchOrder
from ddp_repro.run.nodes.files import Arriving, Held, is_there
from ddp_repro.run.nodes.frames import Frame
from ddp_repro.run.nodes.meeting import Guest, gather
from ddp_repro.run.nodes.own_name import OwnName, own_name
from ddp_repro.run.nodes.place import NodePlace, version
from ddp_repro.trace.launch import LaunchRecord, write_launch_record
from ddp_repro.trace.layout import LaunchFolder, RunFolder

_ANSWER_S: Final = 120.0  # at least, for an answer that needs a disk
_FINISH_S: Final = 10.0  # for the other drivers to end
_VISIBLE_S: Final = 10.0  # for a network file system to show what another node wrote


class NodeLostError(ReproError):
    """A node that can take no more part."""


@dataclass(slots=True, kw_only=True)
class Nodes:
    """All nodes, as driver 0 knows them; ``shared`` tells for each run folder which guests see it too."""

    place: NodePlace
    guests: Sequence[Guest]
    timeout_s: float
    names: dict[str, OwnName]
    verdict: ExitCode = ExitCode.NOT_JUDGED
    _shared: dict[str, dict[int, bool]] = field(default_factory=dict)

    @property
    def own_environment(self) -> dict[str, str]:
        """Return the variables that the ranks of this node are given because there are several."""
        return self.names[self.place.called].environment

    @property
    def count(self) -> int:
        """Return the number of nodes."""
        return self.place.nodes

    def told(self) -> list[dict[str, Any]]:
        """Return what ``run.json`` says of each node."""
        called = [self.place.called, *(guest.called for guest in self.guests)]
        return [{"node": called[node], **asdict(self.names[called[node]])} for node in range(self.count)]

    def share(self, run: RunFolder, order: LaunchOrder, nproc: int) -> DistantShare:
        """Return the ranks of a launch on the other nodes; raises `NodeLostError` where one cannot write."""
        self._place(run)
        return DistantShare(guests=self.guests, here=self.place.called, order=order, nproc=nproc)

    def unseeing(self, run: RunFolder) -> list[str]:
        """Return the nodes that do not see the folder of a run."""
        return [guest.called for guest in self.guests if not self._place(run)[guest.node]]

    def require_shared(self, run: RunFolder, command: str) -> None:
        """Raise ReproError where a node does not see the folder of a run, at the path that it has here."""
        unseeing = self.unseeing(run)
        if unseeing:
            raise ReproError(
                f"{command} over several nodes needs a folder that all of them see; {', '.join(unseeing)} does not see "
                f"{run.path.resolve()}.",
                hint="Name one on a shared file system: output.dir=/path/that/all/nodes/have",
            )

    def collected(self, record: LaunchRecord, run: RunFolder) -> LaunchRecord:
        """Return the record of a launch once everything that its ranks wrote lies in its folder here.

        Where that cannot be, the launch failed, and the record says why.
        """
        folder = run.launch(record.launch)
        reason = record.reason
        for guest in self.guests:
            try:
                self._collect(guest, run, folder)
            except ReproError as error:
                reason = reason or str(error)
        if record.outcome == "hung" or "onnect" in reason:
            reason = "; ".join([reason, *(one.advice(node) for node, one in self.names.items() if one.is_advised)])
        if reason == record.reason:
            return record
        outcome = "failed" if record.outcome == "finished" else record.outcome
        told = replace(record, outcome=outcome, reason=reason)
        write_launch_record(folder, told)
        return told

    def finish(self) -> None:
        """Let the other drivers end, with the code of the verdict."""
        for guest in self.guests:
            guest.link.send({"do": "finish", "code": int(self.verdict)})
        deadline = time.monotonic() + _FINISH_S
        for guest in self.guests:
            while not guest.link.lost and time.monotonic() < deadline:
                guest.link.wait(0.1)
            guest.link.close()

    def _place(self, run: RunFolder) -> dict[int, bool]:
        """Return by node whether it sees this folder; the first time, have each node find out."""
        key = str(run.path.resolve())
        if key not in self._shared:
            self._shared[key] = {guest.node: self._probe(guest, run, key) for guest in self.guests}
        return self._shared[key]

    def _probe(self, guest: Guest, run: RunFolder, key: str) -> bool:
        """Tell whether the other node sees this folder: by a file that is put there for it to find."""
        probe, secret = run.path / f".probe-{secrets.token_hex(4)}", secrets.token_hex(16)
        probe.write_text(secret)
        try:
            order = {"do": "place", "run": key, "probe": probe.name, "secret": secret}
            return bool(self._ask(guest, order, "shared").says["shared"])
        finally:
            probe.unlink()

    def _collect(self, guest: Guest, run: RunFolder, folder: LaunchFolder) -> None:
        key = str(run.path.resolve())
        order = {"run": key, "launch": folder.index}
        shared = self._place(run)[guest.node]
        if shared and self._are_visible(self._files(guest, order, with_digest=False), folder.path):
            return
        for held in self._files(guest, order, with_digest=True):
            self._fetch(guest, {**order, "name": held.name}, held, folder.path)
        if not shared:
            guest.link.send({"do": "drop", **order})

    def _files(self, guest: Guest, order: dict[str, Any], *, with_digest: bool) -> list[Held]:
        answer = self._ask(guest, {"do": "files", **order, "digest": with_digest}, "files")
        return [Held.read(one) for one in answer.says["files"]]

    def _are_visible(self, files: Sequence[Held], folder: Path) -> bool:
        deadline = time.monotonic() + _VISIBLE_S
        while not all(is_there(folder, held) for held in files):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _fetch(self, guest: Guest, order: dict[str, Any], held: Held, folder: Path) -> None:
        try:
            arriving = Arriving(folder, held)
            try:
                while not arriving.is_complete:
                    order = {**order, "do": "piece", "offset": arriving.size}
                    arriving.add(self._ask(guest, order, "piece").block)
                arriving.keep()
            finally:
                arriving.drop()
        except OSError as error:
            raise ReproError(f"{held.name} of {guest.called} cannot be written here: {error.strerror}") from error

    def _ask(self, guest: Guest, order: dict[str, Any], answer: str) -> Frame:
        guest.link.send(order)
        limit_s = max(self.timeout_s, _ANSWER_S)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            frame = guest.link.wait(1.0)
            if frame is None and guest.link.lost:
                raise NodeLostError(f"{guest.called} was lost: {guest.link.lost}")
            if frame is None:
                continue
            for end in ("stopped", "problem"):
                if end in frame.says:
                    raise NodeLostError(f"{guest.called}: {frame.says[end]}")
            if answer in frame.says:
                return frame
        raise NodeLostError(f"{guest.called} gave no answer for {limit_s:g} s")


@contextmanager
def leading(place: NodePlace, config: RecordConfig, invocation: Invocation) -> Iterator[Nodes]:
    """Gather the drivers of all nodes, refuse nodes that are not alike, and let all of them go at the end.

    Raises ReproError where a node does not come, was called otherwise, or is not like the others.
    """
    timeout_s = config.launcher.timeout_s
    hall, guests = gather(place, timeout_s)
    name = own_name(guests[0].link.own_address, config, os.environ)
    names = {place.called: name, **{guest.called: OwnName(**guest.hello.get("name", {})) for guest in guests}}
    nodes = Nodes(place=place, guests=guests, timeout_s=timeout_s, names=names)
    try:
        _refuse(nodes, config, invocation)
        for node, one in names.items():
            if one.is_set:
                sys.stderr.write(f"{one.advice(node)}\n")
        yield nodes
    finally:
        nodes.finish()
        hall.close()


def _refuse(nodes: Nodes, config: RecordConfig, invocation: Invocation) -> None:
    for guest in nodes.guests:
        if failed := guest.hello.get("failed"):
            raise ReproError(f"{guest.called}: {failed}", hint=str(guest.hello.get("hint", "")))
        if guest.hello.get("version") != version():
            raise ReproError(
                f"{guest.called} has ddp_repro {guest.hello.get('version')}, {nodes.place.called} has {version()}.",
                hint="Install the same version on every node.",
            )
        if guest.hello.get("command") != [invocation.command, *invocation.overrides]:
            raise ReproError(
                f"{guest.called} was called otherwise than {nodes.place.called}.",
                hint="Start the same command with the same keys on every node.",
            )
    identities = {nodes.place.called: node_identity(config, os.environ)}
    identities |= {guest.called: guest.hello["identity"] for guest in nodes.guests}
    compare = getattr(config, "compare", None)
    refuse_unlike(identities, compare.allow if compare is not None else None)
