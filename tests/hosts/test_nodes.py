"""Worlds over two hosts: what is judged, what a run ends with, and that nothing is left on either."""

import json
from pathlib import Path

import pytest

from tests.command import TINY
from tests.hosts.drivers import Drivers
from tests.hosts.network import Network

pytestmark = pytest.mark.worlds

RUN = ("nproc=2", "output.dir=run", *TINY)


def begin(network: Network, *overrides: str, folders: list[Path]) -> Drivers:
    return Drivers(network, "check", overrides, folders).begin()


def test_a_check_over_two_hosts(network: Network, tmp_path: Path) -> None:
    first, second = begin(network, *RUN, folders=[tmp_path, tmp_path]).end()
    assert first.last_line == "REPRODUCIBLE", first.stdout + first.stderr + second.stderr
    assert (first.code, second.code) == (0, 0)
    assert second.stdout == ""
    identity = json.loads((tmp_path / "run" / "launch-0" / "rank-3.identity.json").read_text())
    experiment = {key: identity["experiment"][key] for key in ("world_size", "ranks_per_node", "nodes", "placement")}
    assert experiment == {"world_size": 4, "ranks_per_node": 2, "nodes": 2, "placement": [0, 0, 1, 1]}
    assert identity["provenance"]["host"] == "h2"
    assert not list((tmp_path / "run").glob(".*"))
