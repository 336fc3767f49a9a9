"""Worlds over two hosts: what is judged, what a run ends with, and that nothing is left on either."""

import json
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.launch import read_launch_record
from ddp_repro.trace.layout import RunFolder
from tests.command import TINY, Done
from tests.hosts.drivers import Drivers
from tests.hosts.network import Network

pytestmark = pytest.mark.worlds

RUN = ("nproc=2", "output.dir=run", *TINY)
EITHER = [1, pytest.param(0, marks=pytest.mark.full)]
LONG = ("nproc=2", "output.dir=run", "workload.size=tiny", "train.epochs=500")


def begin(
    network: Network, folders: Sequence[Path], *overrides: str, extra: Sequence[Mapping[str, str]] = ()
) -> Drivers:
    return Drivers(network, "check", overrides, folders, extra).begin()


def await_steps(folder: Path, ranks: Sequence[int] = (0, 1, 2, 3)) -> None:
    """Wait until these ranks of launch 0 have written steps."""
    launch, deadline = RunFolder(folder / "run").launch(0), time.monotonic() + 60
    while time.monotonic() < deadline:
        files = [launch.trace(rank) for rank in ranks]
        if all(file.is_file() and file.stat().st_size > 20_000 for file in files):
            return
        time.sleep(0.05)
    pytest.fail("no steps were seen")


def ended_within(drivers: Drivers, seconds: float) -> list[Done]:
    """Return how all drivers ended; what they left running is looked for at once, not only at the test's end."""
    began = time.monotonic()
    done = drivers.end()
    took = time.monotonic() - began
    assert took < seconds, (took, *done)
    left = {host.name: [process.pid for process in host.processes()] for host in drivers.hosts}
    assert left == {host.name: [] for host in drivers.hosts}
    return done


def assert_not_judged(done: Sequence[Done], *told: str) -> str:
    """Assert that all drivers ended with 2 and few words, and that the first told these; return what it told."""
    assert [one.code for one in done] == [2] * len(done), done
    for one in done:
        assert "Traceback" not in one.stdout + one.stderr, one
    first = done[0]
    first.assert_short_refusal()
    assert [one.stdout for one in done[1:]] == [""] * (len(done) - 1)
    text = " ".join([first.stderr, *(first.verdict["problems"] if first.verdict is not None else [])])
    for words in told:
        assert words in text, text
    return text


def identity(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RunFolder(folder / "run").launch(0).rank_identity(rank).read_text())
    return found


def test_a_check_over_two_hosts(network: Network, tmp_path: Path) -> None:
    first, second = begin(network, [tmp_path] * 2, *RUN).end()
    assert first.last_line == "REPRODUCIBLE", (first, second)
    assert (first.code, second.code) == (0, 0)
    assert second.stdout == ""
    told = identity(tmp_path, 3)
    experiment = {key: told["experiment"][key] for key in ("world_size", "ranks_per_node", "nodes", "placement")}
    assert experiment == {"world_size": 4, "ranks_per_node": 2, "nodes": 2, "placement": [0, 0, 1, 1]}
    assert told["provenance"]["host"] == "h2"
    assert first.verdict is not None
    assert first.verdict["nodes"] == [
        {"node": 0, "host": "h1", "ranks": [0, 1]},
        {"node": 1, "host": "h2", "ranks": [2, 3]},
    ]
    assert not list((tmp_path / "run").glob(".*"))


def test_a_fault_is_placed_on_its_rank_and_node_without_a_shared_folder(network: Network, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    network.hosts["h2"].mount_own(folder)
    fault = "workload._target_=planted.workloads.one_rank_differs_in_backward"
    first, second = begin(network, [folder] * 2, "nproc=2", "output.dir=run", "train.max_steps=5", fault).end()
    assert (first.code, second.code) == (1, 1), (first, second)
    assert first.verdict is not None
    (found, *_) = first.verdict["findings"]
    assert (found["step"], found["ranks"], found["nodes"]) == (3, [2], [1]), found
    assert "rank 2 on node 1 (h2)" in first.stdout
    for launch in RunFolder(folder / "run").launches():
        assert launch.ranks() == [0, 1, 2, 3]
        assert launch.log(3).exists()
    assert network.hosts["h2"].run("find", str(folder), "-mindepth", "1") == ""


def test_a_killed_rank_on_another_node_is_named(network: Network, tmp_path: Path) -> None:
    drivers = begin(network, [tmp_path] * 2, *LONG)
    await_steps(tmp_path)
    drivers.ranks(1)[1].send_signal(signal.SIGKILL)
    text = assert_not_judged(ended_within(drivers, 20), "on node 1 (h2)", "killed by SIGKILL")
    record = read_launch_record(RunFolder(tmp_path / "run").launch(0).record)
    assert record.outcome == "failed"
    assert [end.rank for end in record.ranks] == [0, 1, 2, 3]
    (killed,) = [end for end in record.ranks if "SIGKILL" in end.note]
    assert killed.rank in (2, 3)
    assert f"rank {killed.rank} on node 1 (h2)" in text
    assert all(end.exit_code is not None for end in record.ranks)


@pytest.mark.full
def test_the_rank_that_raises_is_named_and_not_those_that_lost_it(network: Network, tmp_path: Path) -> None:
    fault = "workload._target_=planted.endings.raising"
    done = ended_within(begin(network, [tmp_path] * 2, "nproc=1", "output.dir=run", fault), 40)
    assert_not_judged(done, "rank 1 on node 1 (h2): ValueError: the label 11 is unknown")


@pytest.mark.parametrize("node", EITHER)
def test_a_killed_driver_ends_the_other(network: Network, tmp_path: Path, node: int) -> None:
    drivers = begin(network, [tmp_path] * 2, *LONG)
    await_steps(tmp_path)
    drivers.driver(node).send_signal(signal.SIGKILL)
    done = ended_within(drivers, 20)
    assert done[node].code == -signal.SIGKILL
    if node == 1:
        assert_not_judged(done[:1], "node 1 (h2) was lost")
    else:
        assert done[1].code == 2
        assert "node 1 (h2): node 0 (10.77.0.1) was lost" in done[1].stderr


@pytest.mark.parametrize("node", EITHER)
def test_a_driver_that_is_told_to_stop_ends_all(network: Network, tmp_path: Path, node: int) -> None:
    drivers = begin(network, [tmp_path] * 2, *LONG)
    await_steps(tmp_path)
    drivers.driver(node).send_signal(signal.SIGTERM)
    assert_not_judged(ended_within(drivers, 20), "SIGTERM", *(["node 1 (h2): its driver got SIGTERM"] if node else []))


def test_a_cut_link_ends_both_sides(network: Network, tmp_path: Path) -> None:
    drivers = begin(network, [tmp_path] * 2, *LONG, "launcher.timeout_s=12")
    await_steps(tmp_path)
    network.cut("h2")
    done = ended_within(drivers, 24)
    assert_not_judged(done, "node 1 (h2) was lost: nothing was heard from it for 6 s")
    assert "node 1 (h2): node 0 (10.77.0.1) was lost: nothing was heard from it for 6 s" in done[1].stderr


@pytest.mark.parametrize("node", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_node_that_never_comes_is_named(network: Network, tmp_path: Path, node: int) -> None:
    drivers = Drivers(network, "check", [*RUN, "launcher.timeout_s=4"], [tmp_path] * 2, absent=1 - node).begin()
    (done,) = ended_within(drivers, 15)
    assert done.code == 2
    assert "Traceback" not in done.stdout + done.stderr
    told = "the driver of node 1 did not come within 4 s"
    if node == 1:
        told = f"node 1 (h2): nothing was heard of driver 0 at {network.hosts['h1'].address} port 29500 for 4 s"
    assert told in done.stderr
    assert not (tmp_path / "run").exists()


def test_nodes_that_are_not_alike_are_named_before_anything_starts(network: Network, tmp_path: Path) -> None:
    drivers = begin(network, [tmp_path] * 2, *RUN, extra=[{}, {"MKL_CBWR": "COMPATIBLE"}])
    told = "environment.variables.MKL_CBWR is unset on node 0 (h1) and COMPATIBLE on node 1 (h2)"
    assert_not_judged(ended_within(drivers, 20), told, "compare.allow=[environment.variables.MKL_CBWR]")
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_a_thread_count_that_differs_is_named(network: Network, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('nothing is to be launched')\n")
    threads: list[Mapping[str, str]] = [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}]
    words = ["nproc=2", "output.dir=run", "workload=script", f"workload.path={script}"]
    done = ended_within(begin(network, [tmp_path] * 2, *words, extra=threads), 20)
    assert_not_judged(done, "environment.threads is 1 on node 0 (h1) and 2 on node 1 (h2)")


def test_drivers_that_were_called_otherwise_are_refused(network: Network, tmp_path: Path) -> None:
    drivers = Drivers(network, "check", RUN, [tmp_path] * 2, more=[[], ["seed=1"]]).begin()
    assert_not_judged(ended_within(drivers, 20), "node 1 (h2) was called otherwise than node 0 (h1)")


@pytest.mark.full
def test_a_key_that_only_one_node_cannot_read_is_told_by_the_first(network: Network, tmp_path: Path) -> None:
    drivers = Drivers(network, "check", RUN, [tmp_path] * 2, more=[[], ["sed=1"]]).begin()
    assert_not_judged(ended_within(drivers, 20), "node 1 (h2): ", "sed")


def test_a_host_whose_own_name_is_a_loopback_address(network: Network, tmp_path: Path) -> None:
    for name in network.hosts:
        network.rename(name, "127.0.1.1")
    first, second = Drivers(network, "record", RUN, [tmp_path] * 2).begin().end()
    assert (first.code, second.code) == (0, 0), (first, second)
    assert first.stderr.count("GLOO_SOCKET_IFNAME=eth0 was set for its ranks") == 2
    assert "the name h2 of node 1 (h2) means 127.0.1.1 there" in first.stderr


TRAINING = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
numbers = torch.Generator().manual_seed(dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4, generator=numbers)).sum().backward()
    optimizer.step()
"""


@pytest.mark.full
def test_a_script_over_two_hosts(network: Network, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = ["nproc=2", "output.dir=run", "workload=script", "workload.path=train.py"]
    first, second = begin(network, [tmp_path] * 2, *words).end()
    assert (first.code, second.code) == (0, 0), (first, second)
    assert identity(tmp_path, 3)["experiment"]["placement"] == [0, 0, 1, 1]


SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
print(torch.ones(1))
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.full
def test_a_script_on_such_a_host_is_told_what_to_set(network: Network, tmp_path: Path) -> None:
    for name in network.hosts:
        network.rename(name, "127.0.1.1")
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["nproc=1", "output.dir=run", "workload=script", "workload.path=train.py", "launcher.timeout_s=20"]
    done = ended_within(begin(network, [tmp_path] * 2, *words), 60)
    assert_not_judged(done, "set GLOO_SOCKET_IFNAME=eth0 there")


@pytest.mark.full
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_training_over_two_hosts_is_resumed(network: Network, tmp_path: Path, stop: str) -> None:
    words = [
        "nproc=2",
        "output.dir=run",
        "workload.size=tiny",
        "train.max_steps=6",
        "resume.at=[3]",
        f"resume.stop={stop}",
    ]
    first, second = Drivers(network, "resume", words, [tmp_path] * 2).begin().end()
    assert (first.code, second.code) == (0, 0), (first, second)
    assert first.last_line == "REPRODUCIBLE"


def test_resume_needs_a_shared_folder(network: Network, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    network.hosts["h2"].mount_own(folder)
    done = ended_within(Drivers(network, "resume", RUN, [folder] * 2).begin(), 20)
    assert_not_judged(done, "resume over several nodes needs a folder that all of them see; node 1 (h2) does not")


@pytest.mark.full
def test_a_rank_that_hangs_on_another_node(network: Network, tmp_path: Path) -> None:
    fault = "workload._target_=planted.endings.hanging_on_rank_1"
    words = ["nproc=1", "output.dir=run", fault, "launcher.timeout_s=8"]
    done = ended_within(begin(network, [tmp_path] * 2, *words), 40)
    assert_not_judged(done, "no step was completed for 8 s", "rank 1: ")
    assert "waits_for_ever" in RunFolder(tmp_path / "run").launch(0).log(1).read_text()


@pytest.mark.full
def test_nodes_may_differ_in_what_is_allowed(network: Network, tmp_path: Path) -> None:
    allow = "compare.allow=[environment.variables.MKL_CBWR]"
    extra: list[Mapping[str, str]] = [{}, {"MKL_CBWR": "COMPATIBLE"}]
    first, second = begin(network, [tmp_path] * 2, *RUN, allow, extra=extra).end()
    assert (first.code, second.code) == (0, 0), (first, second)
    assert first.verdict is not None
    (found,) = first.verdict["findings"]
    assert (found["severity"], found["names"]) == ("warning", ["environment.variables.MKL_CBWR"])


@pytest.mark.full
def test_a_second_look_without_a_shared_folder(network: Network, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    network.hosts["h2"].mount_own(folder)
    fault = "workload._target_=planted.workloads.one_rank_differs_in_backward"
    words = ["nproc=2", "output.dir=run", "train.max_steps=5", "second_look=true", fault]
    first, second = begin(network, [folder] * 2, *words).end()
    assert (first.code, second.code) == (1, 1), (first, second)
    assert first.verdict is not None
    assert first.verdict["findings"][0]["ranks"] == [2]
    assert "second look: " in " ".join(first.verdict["notes"])
    assert network.hosts["h2"].run("find", str(folder), "-mindepth", "1") == ""


@pytest.mark.full
def test_two_checks_at_once_over_the_same_hosts(network: Network, tmp_path: Path) -> None:
    words = ["nproc=2", "output.root=runs", *TINY]
    both = [Drivers(network, "check", words, [tmp_path] * 2, port=port).begin() for port in (29500, 29600)]
    done = [one for drivers in both for one in drivers.end()]
    assert [one.code for one in done] == [0, 0, 0, 0], done
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["0", "1"]


@pytest.mark.full
@pytest.mark.parametrize("shared", [True, False])
def test_a_launch_is_ended_early_where_its_traces_are_seen(network: Network, tmp_path: Path, *, shared: bool) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    if not shared:
        network.hosts["h2"].mount_own(folder)
    fault = "workload._target_=planted.workloads.one_rank_differs_in_backward"
    words = ["nproc=2", "output.dir=run", "train.max_steps=150", "train.epochs=20", "fail_fast=true", fault]
    first, second = begin(network, [folder] * 2, *words).end()
    assert (first.code, second.code) == (1, 1), (first, second)
    assert first.verdict is not None
    assert first.verdict["findings"][0]["ranks"] == [2]
    if not shared:
        assert "launch 1 is not ended early: node 1 (h2) does not write to this folder" in first.stderr
        assert first.verdict["ended_early"] == []
