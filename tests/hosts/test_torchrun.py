"""Worlds over two hosts as a person starts them: torchrun on each, real interpreters throughout."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddp_repro.trace.layout import RunFolder
from tests.command import TINY, environment, read_verdict
from tests.hosts.drivers import torchrun
from tests.hosts.network import Network
from tests.hosts.test_nodes import LONG, RUN, await_steps

pytestmark = [pytest.mark.worlds, pytest.mark.full]


def begin(
    network: Network, folder: Path, *words: str, nodes: Sequence[int] = (0, 1)
) -> "list[subprocess.Popen[bytes]]":
    hosts = list(network.hosts.values())
    return [
        hosts[node].start(
            torchrun(network, node, *words), cwd=folder, environ=environment(), out=folder / f"node{node}"
        )
        for node in nodes
    ]


def said(folder: Path, node: int) -> tuple[str, str]:
    return (folder / f"node{node}.out").read_text(), (folder / f"node{node}.err").read_text()


def ended(network: Network, agents: "Sequence[subprocess.Popen[bytes]]", seconds: float) -> list[int]:
    """Return the exit codes of all agents, which end within ``seconds`` and leave nothing running."""
    deadline = time.monotonic() + seconds
    codes = [agent.wait(timeout=max(0.1, deadline - time.monotonic())) for agent in agents]
    left = {name: [process.cmdline() for process in host.processes()] for name, host in network.hosts.items()}
    assert left == {"h1": [], "h2": []}
    return codes


def driver(network: Network, name: str) -> int:
    """Return the process id of the driver on a host: the child of torchrun."""
    for process in network.hosts[name].processes():
        command = " ".join(process.cmdline())
        if "ddp_repro.check" in command and "torch.distributed.run" not in command:
            return int(process.pid)
    raise AssertionError(name)


def test_a_check(network: Network, tmp_path: Path) -> None:
    agents = begin(network, tmp_path, "ddp_repro.check", *RUN)
    assert ended(network, agents, 150) == [0, 0], [said(tmp_path, node) for node in (0, 1)]
    assert said(tmp_path, 0)[0].splitlines()[-1] == "REPRODUCIBLE"
    assert said(tmp_path, 1)[0] == ""
    verdict = read_verdict(tmp_path, RUN)
    assert verdict is not None
    assert verdict["command"].startswith("torchrun --nnodes 2 --nproc-per-node 1 … -m ddp_repro.check nproc=2")


def test_a_record(network: Network, tmp_path: Path) -> None:
    agents = begin(network, tmp_path, "ddp_repro.record", *RUN)
    assert ended(network, agents, 150) == [0, 0], [said(tmp_path, node) for node in (0, 1)]
    assert "of 4 ranks in run/launch-0" in said(tmp_path, 0)[0]
    assert RunFolder(tmp_path / "run").launch(0).ranks() == [0, 1, 2, 3]


def test_a_killed_driver(network: Network, tmp_path: Path) -> None:
    agents = begin(network, tmp_path, "ddp_repro.check", *LONG)
    await_steps(tmp_path)
    os.kill(driver(network, "h2"), signal.SIGKILL)
    assert ended(network, agents, 40) == [1, 1]
    verdict = read_verdict(tmp_path, RUN)
    assert verdict is not None
    assert verdict["verdict"] == "NOT_JUDGED"
    assert "node 1 (h2) was lost: its driver is gone" in verdict["problems"][0]


def test_a_killed_torchrun(network: Network, tmp_path: Path) -> None:
    agents = begin(network, tmp_path, "ddp_repro.check", *LONG)
    await_steps(tmp_path)
    agents[1].kill()
    assert ended(network, agents, 40) == [1, -signal.SIGKILL]
    verdict = read_verdict(tmp_path, RUN)
    assert verdict is not None
    assert "node 1 (h2): its driver got SIGTERM" in verdict["problems"][0]


def test_a_cut_link(network: Network, tmp_path: Path) -> None:
    agents = begin(network, tmp_path, "ddp_repro.check", *LONG, "launcher.timeout_s=20")
    await_steps(tmp_path)
    network.cut("h2")
    assert ended(network, agents, 40) == [1, 1]
    verdict = read_verdict(tmp_path, RUN)
    assert verdict is not None
    assert "node 1 (h2) was lost: nothing was heard from it for 10 s" in verdict["problems"][0]


def test_several_drivers_on_each_node(network: Network, tmp_path: Path) -> None:
    hosts = list(network.hosts.values())
    agents = []
    for node, host in enumerate(hosts):
        words = [
            ("2" if before == "--nproc-per-node" else word)
            for before, word in _pairs(torchrun(network, node, "ddp_repro.check", *TINY))
        ]
        agents.append(host.start(words, cwd=tmp_path, environ=environment(), out=tmp_path / f"node{node}"))
    assert ended(network, agents, 100) == [1, 1]
    assert said(tmp_path, 0)[1].count("torchrun started 2 drivers on this node; one is needed") == 1
    assert "drivers on this node" not in said(tmp_path, 1)[1]


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))
