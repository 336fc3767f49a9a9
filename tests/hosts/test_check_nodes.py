"""`launch/check_nodes.sh` on two hosts, as a person calls it."""

from pathlib import Path

import pytest

from tests.command import TINY, read_verdict
from tests.hosts.network import Network
from tests.installed import ROOT, installed

pytestmark = [pytest.mark.worlds, pytest.mark.full]

WORDS = ("nproc=2", "second_look=false", "report.html=false", "output.dir=run")
PLANTED = ("workload._target_=planted.workloads.unseeded_library", "train.max_steps=4")


@pytest.mark.parametrize(("what", "code", "told"), [(TINY, 0, "REPRODUCIBLE"), (PLANTED, 1, "DIVERGED")])
def test_all_hosts_end_with_the_code_of_the_verdict(
    network: Network, tmp_path: Path, what: tuple[str, ...], code: int, told: str
) -> None:
    environ = installed(tmp_path / "venv")
    started = [
        host.start(
            [str(ROOT / "launch/check_nodes.sh"), *WORDS, *what],
            cwd=tmp_path,
            environ={**environ, "NNODES": "2", "NODE_RANK": str(node), "HEAD": "h1"},
            out=tmp_path / f"node{node}",
        )
        for node, host in enumerate(network.hosts.values())
    ]
    assert [process.wait(timeout=200) for process in started] == [code, code], (tmp_path / "node0.err").read_text()
    assert (tmp_path / "node0.out").read_text().splitlines()[-1] == told
    verdict = read_verdict(tmp_path, WORDS)
    assert verdict is not None
    assert verdict["verdict"] == told
