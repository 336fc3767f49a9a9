"""Where a driver stands among those of other nodes, as torchrun told it."""

import importlib.metadata
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MESSAGES: Final = 1  # version of what drivers say to each other


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """The number of this driver's node, of how many, and where torchrun keeps the store by which drivers meet.

    ``attempt`` tells one group of drivers from another that meets at the same place. With ``hosts_store`` it is driver
    0 that keeps the store, else torchrun's agent.
    """

    node: int = 0
    nodes: int = 1
    address: str = ""
    port: int = 0
    attempt: str = ""
    hosts_store: bool = False

    @property
    def called(self) -> str:
        """Return what this node is called: its number and its host's name."""
        return called(self.node, socket.gethostname())


def called(node: int, host: str) -> str:
    """Return "node 1 (h2)"."""
    return f"node {node} ({host})"


def node_place(environ: Mapping[str, str]) -> NodePlace:
    """Return the place of this driver; the only one where torchrun did not start it."""
    nodes = int(environ.get("GROUP_WORLD_SIZE", "1"))
    if nodes == 1:
        return NodePlace()
    node = int(environ["GROUP_RANK"])
    run, restart = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return NodePlace(
        node=node,
        nodes=nodes,
        address=environ["MASTER_ADDR"],
        port=int(environ["MASTER_PORT"]),
        attempt=f"{run}/{restart}",
        hosts_store=node == 0 and environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
    )


def version() -> str:
    """Return the version of this package, which must be the same on all nodes."""
    try:
        installed = importlib.metadata.version("ddp-repro")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        installed = "not installed"
    return f"{installed} (messages {_MESSAGES})"
