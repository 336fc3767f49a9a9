"""The hosts that tests of several nodes run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import Network, missing


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Two hosts, h1 and h2, on which nothing may be left running."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    folder = tmp_path / "network"
    folder.mkdir()
    network = Network(folder, ["h1", "h2"])
    try:
        yield network
        left = {name: [process.cmdline() for process in host.processes()] for name, host in network.hosts.items()}
    finally:
        network.close()
    assert left == {"h1": [], "h2": []}
