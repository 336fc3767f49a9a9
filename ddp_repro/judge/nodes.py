"""On which nodes the ranks of launches were, where there were several."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddp_repro.judge.wording import listed
from ddp_repro.trace.launch import Launch

Nodes = Mapping[int, tuple[int, str]]
"""By rank, the number of its node and the name of its host; empty where all ranks were on one node."""


def nodes_of(launches: Sequence[Launch]) -> dict[int, tuple[int, str]]:
    """Return the node of each rank, as the first launch that has its identity tells."""
    found: dict[int, tuple[int, str]] = {}
    for launch in launches:
        for rank, identity in launch.identities.items():
            node = _node(rank, identity)
            if node is not None:
                found.setdefault(rank, node)
    return found if len({node for node, _ in found.values()}) > 1 else {}


def on_nodes(ranks: Sequence[int], nodes: Nodes) -> str:
    """Return " on node 1 (h2)" for ranks that are not spread over all nodes; empty where they are."""
    held = {nodes[rank]: None for rank in sorted(ranks) if rank in nodes}
    if not held or len(held) == len(set(nodes.values())):
        return ""
    return f" on {listed(f'node {node} ({host})' for node, host in held)}"


def in_document(nodes: Nodes) -> list[dict[str, Any]]:
    """Return the nodes as ``verdict.json`` tells them."""
    ranks: dict[tuple[int, str], list[int]] = {}
    for rank, node in sorted(nodes.items()):
        ranks.setdefault(node, []).append(rank)
    return [{"node": node, "host": host, "ranks": held} for (node, host), held in sorted(ranks.items())]


def _node(rank: int, identity: Mapping[str, Any]) -> tuple[int, str] | None:
    try:
        placement, host = identity["experiment"]["placement"], identity["provenance"]["host"]
        return int(placement[rank]), str(host)
    except (KeyError, IndexError, TypeError, ValueError):  # recorded otherwise, or damaged: told elsewhere
        return None
