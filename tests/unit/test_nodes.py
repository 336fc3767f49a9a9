"""What drivers of several nodes say to each other, without a launch: all of it on this host."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.config import RecordConfig
from ddp_repro.errors import ReproError
from ddp_repro.run.nodes import files, frames, lead
from ddp_repro.run.nodes.addresses import interface_of, misleading_name, plain
from ddp_repro.run.nodes.alike import node_identity, refuse_unlike
from ddp_repro.run.nodes.distant import LaunchOrder
from ddp_repro.run.nodes.files import Arriving, Held, held_files
from ddp_repro.run.nodes.folders import RunFolders
from ddp_repro.run.nodes.follow import Follower
from ddp_repro.run.nodes.frames import Frame, FrameError, FrameReader, packed
from ddp_repro.run.nodes.lead import Nodes
from ddp_repro.run.nodes.link import Link, silence_of
from ddp_repro.run.nodes.meeting import Guest
from ddp_repro.run.nodes.own_name import OwnName
from ddp_repro.run.nodes.place import NodePlace, node_place
from ddp_repro.run.origin import origin_on_nodes
from ddp_repro.run.progress import Message
from ddp_repro.run.rank_state import RankState
from ddp_repro.trace.launch import LaunchRecord, RankExit
from ddp_repro.trace.layout import RunFolder


def connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    return one, other


@pytest.fixture
def links() -> Iterator[tuple[Link, Link]]:
    one, other = (Link(end, silence_s=30.0) for end in connection())
    yield one, other
    for link in (one, other):
        link.close(linger_s=0.0)


def test_frames_survive_any_cut() -> None:
    sent = [Frame(says={"do": "launch", "text": "é"}), Frame(says={}), Frame(says={"piece": 1}, block=b"\0" * 1000)]
    stream = b"".join(packed(frame) for frame in sent)
    for size in (1, 7, 4096):
        reader = FrameReader()
        got = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
        assert got == sent


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n", packed(Frame(says={}, block=b""))[:8].replace(b"\2", b"\1") + b"x", b"\0\0\0\2\0\0\0\0[]"],
)
def test_what_is_no_frame_is_refused(sent: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(sent)


def test_messages_arrive_in_order_and_to_the_last(links: tuple[Link, Link]) -> None:
    one, other = links
    block = os.urandom(frames.PIECE)
    for number in range(50):
        one.send({"number": number}, block if number == 25 else b"")
    one.close()
    got = []
    while (frame := other.wait(10)) is not None:
        got.append(frame)
    assert [frame.says["number"] for frame in got] == list(range(50))
    assert got[25].block == block
    assert other.lost == "its driver is gone"


def test_who_says_nothing_is_lost() -> None:
    ours, theirs = connection()
    link = Link(ours, silence_s=1.5)
    began = time.monotonic()
    assert link.wait(30) is None
    assert 1.0 < time.monotonic() - began < 10
    assert link.lost == "nothing was heard from it for 1.5 s"
    theirs.close()
    link.close(linger_s=0.0)


def test_a_sign_of_life_is_enough() -> None:
    one, other = (Link(end, silence_s=3.0) for end in connection())
    time.sleep(4.0)
    assert (one.lost, other.lost) == ("", "")
    one.send({"still": "there"})
    frame = other.wait(5)
    assert frame is not None
    assert frame.says == {"still": "there"}
    for link in (one, other):
        link.close(linger_s=0.0)


def test_what_is_no_driver_is_lost() -> None:
    ours, theirs = connection()
    link = Link(ours, silence_s=30.0)
    theirs.send(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
    assert link.wait(10) is None
    assert link.lost.startswith("it sent a frame of")
    theirs.close()
    link.close(linger_s=0.0)


def test_silence_is_bounded() -> None:
    assert silence_of(600) == 60
    assert silence_of(12) == 6
    assert silence_of(0.1) == 3


def test_a_driver_knows_its_place() -> None:
    torchrun = {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "h1", "MASTER_PORT": "29500"}
    assert node_place({}) == node_place({"GROUP_WORLD_SIZE": "1"}) == NodePlace()
    place = node_place({**torchrun, "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "2"})
    assert (place.node, place.nodes, place.address, place.port, place.attempt) == (1, 2, "h1", 29500, "x/2")
    assert not place.hosts_store
    assert node_place({**torchrun, "GROUP_RANK": "0"}).hosts_store
    assert not node_place({**torchrun, "GROUP_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}).hosts_store


def test_addresses_are_written_plainly() -> None:
    assert plain("::ffff:10.77.0.1") == "10.77.0.1"
    assert plain("10.77.0.1") == "10.77.0.1"
    assert plain("fe80::1%eth0") == "fe80::1%eth0"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None


@pytest.mark.parametrize(
    ("meant", "told"),
    [("127.0.1.1", "127.0.1.1"), ("192.0.2.7", "192.0.2.7"), ("", "nothing")],
)
def test_a_name_that_leads_astray_is_known(monkeypatch: pytest.MonkeyPatch, meant: str, told: str) -> None:
    def lookup(name: str, *_: object, **__: object) -> list[Any]:
        if not meant:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (meant, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert misleading_name("10.77.0.1") == told
    assert misleading_name("127.0.0.1") is None


def test_nodes_that_are_alike_pass_and_others_are_named() -> None:
    identity = json.loads(json.dumps(node_identity(RecordConfig(), {"PATH": "/bin"})))
    assert identity == json.loads(json.dumps(node_identity(RecordConfig(), {"PATH": "/elsewhere"})))
    other = json.loads(json.dumps(identity))
    other["software"]["torch"], other["hardware"]["cpu"] = "2.12.0", "another"
    nodes = {"node 0 (a)": identity, "node 1 (b)": identity, "node 2 (c)": other}
    refuse_unlike({"node 0 (a)": identity, "node 1 (b)": identity}, ())
    refuse_unlike(nodes, ("software.torch", "hardware"))
    with pytest.raises(
        ReproError, match=r"hardware.cpu is .* on node 0 \(a\), node 1 \(b\) and another on node 2 \(c\)"
    ) as told:
        refuse_unlike(nodes, ("software",))
    assert "compare.allow=[hardware.cpu]" in told.value.hint
    with pytest.raises(ReproError) as told:
        refuse_unlike(nodes, None)
    assert "compare" not in told.value.hint


@dataclass
class Ended:
    """A rank's process that has ended."""

    returncode: int | None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, sig: int) -> None: ...


LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.77.0.2]:4"


@pytest.mark.parametrize(
    ("ends", "told", "first"),
    [
        ([(1, LOST), (1, LOST), (-9, ""), (1, LOST)], (0, 1, 3), 2),  # killed
        ([(1, LOST), (1, "ValueError: 11")], (0, 1), 1),  # its own error came after that of a lost connection
        ([(-6, ""), (1, "ValueError: 11")], (1,), 1),  # the other one aborts because of it
        ([(1, LOST), (1, LOST)], (1, 0), 1),  # the network: whoever said so first
        ([(1, LOST), (3, "")], (0,), 1),  # left by os._exit
    ],
)
def test_the_rank_that_failed_first(ends: list[tuple[int, str]], told: tuple[int, ...], first: int) -> None:
    ranks = [RankState(process=Ended(code)) for code, _ in ends]
    for number, (_, text) in enumerate(ends):
        if text:
            ranks[number].take(Message(rank=number, event="error", text=text))
    assert origin_on_nodes(ranks, told) == first


@dataclass
class Pair:
    """Driver 0 with a run's folder, and the driver of node 1 with a folder of its own, which does what it is told."""

    nodes: Nodes
    run: RunFolder
    follower: Follower
    there: Path

    def launch(self) -> Path:
        """Have both place the run; return the folder of launch 0 as node 1 sees it."""
        order = LaunchOrder(run=str(self.run.path.resolve()), launch=0, config="config.yaml", text="")
        self.nodes.share(self.run, order, 2)
        self.run.launch(0).path.mkdir()
        folder = self.follower.folders.launch({"run": order.run, "launch": 0}).path
        for name, content in CONTENT.items():
            (folder / name).write_bytes(content)
        return folder


CONTENT = {"rank-2.arrows": os.urandom(100_000), "rank-2.log": b"", "rank-3.log": b"x" * 4096}
RECORD = LaunchRecord(launch=0, world_size=4, outcome="finished", reason="", ranks=[], seconds=1.0)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(files, "PIECE", 4096)
    monkeypatch.setattr(lead, "_VISIBLE_S", 0.3)
    place_run = RunFolders.place
    blind = {"secret": "what stands on another disk"}
    monkeypatch.setattr(RunFolders, "place", lambda self, order: place_run(self, {**order, **blind}))
    here, there = tmp_path / "here", tmp_path / "there"
    run = RunFolder(here / "run")
    run.path.mkdir(parents=True)
    one, other = (Link(end, silence_s=30.0) for end in connection())
    name = OwnName(host="h2", address="127.0.0.1")
    place = NodePlace(node=1, nodes=2)
    follower = Follower(place=place, link=other, name=name, folders=RunFolders(there, 1))
    guest = Guest(node=1, link=one, hello={"host": "h2"})
    names = {NodePlace().called: OwnName(), guest.called: name}
    nodes = Nodes(place=NodePlace(nodes=2), guests=[guest], timeout_s=5.0, names=names)

    def obey() -> None:
        with suppress(ReproError):
            follower.obey()
        other.close(linger_s=0.0)

    thread = threading.Thread(target=obey)
    thread.start()
    yield Pair(nodes, run, follower, there)
    nodes.finish()
    thread.join(10)
    assert not thread.is_alive()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_without_a_shared_folder_files_are_sent_whole(pair: Pair) -> None:
    folder = pair.launch()
    assert folder.is_relative_to(pair.there)
    with pytest.raises(
        ReproError, match=r"resume over several nodes needs a folder that all .* node 1 \(h2\) does not"
    ):
        pair.nodes.require_shared(pair.run, "resume")
    assert pair.nodes.collected(RECORD, pair.run) == RECORD
    assert contents(pair.run.launch(0).path) == CONTENT
    pair.nodes.finish()
    assert not folder.exists()
    assert pair.follower.folders.close() == []
    assert not pair.there.exists()


def test_a_shared_folder_is_found_by_looking(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    folder = pair.launch()
    assert folder == pair.run.launch(0).path.resolve()
    pair.nodes.require_shared(pair.run, "resume")
    assert pair.nodes.collected(RECORD, pair.run) == RECORD
    assert contents(folder) == CONTENT


def test_what_changes_on_its_way_is_not_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.launch()
    add = Arriving.add

    def flip(self: Arriving, piece: bytes) -> None:
        add(self, bytes([piece[0] ^ 1]) + piece[1:])

    monkeypatch.setattr(Arriving, "add", flip)
    record = pair.nodes.collected(RECORD, pair.run)
    assert record.outcome == "failed"
    assert "rank-2.arrows came in another content than it was sent in" in record.reason
    assert contents(pair.run.launch(0).path).keys() == {"launch.json"}
    assert pair.follower.folders.close() != []  # what was not sent stays


def test_a_node_that_goes_while_it_sends_is_named(pair: Pair) -> None:
    folder = pair.launch()
    pair.follower.link.close(linger_s=0.0)
    record = pair.nodes.collected(RECORD, pair.run)
    assert (record.outcome, record.reason) == ("failed", "node 1 (h2) was lost: its driver is gone")
    assert contents(folder) == CONTENT


def test_a_failed_launch_keeps_its_reason(pair: Pair) -> None:
    pair.launch()
    pair.follower.link.close(linger_s=0.0)
    failed = replace(RECORD, outcome="failed", reason="rank 1: no", ranks=[RankExit(rank=0, exit_code=1, last_step=2)])
    assert pair.nodes.collected(failed, pair.run) == failed


@pytest.mark.parametrize("name", ["../rank-0.arrows", "/etc/passwd", ".hidden", "a/b"])
def test_a_name_that_leads_out_of_the_folder_is_not_taken(name: str) -> None:
    with pytest.raises(ReproError, match="which is not taken"):
        Held.read({"name": name, "size": 1, "digest": ""})


def test_temporary_files_are_not_held(tmp_path: Path) -> None:
    (tmp_path / ".rank-0.final.json.1234.tmp").write_text("x")
    (tmp_path / "rank-0.log").write_text("xy")
    assert [(held.name, held.size) for held in held_files(tmp_path, with_digest=False)] == [("rank-0.log", 2)]
