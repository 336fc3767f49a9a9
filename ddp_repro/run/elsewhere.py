"""What a launcher wants of the ranks of its world that run on other nodes."""

from typing import Protocol

from ddp_repro.run.progress import Message
from ddp_repro.run.rank_state import RankState


class Elsewhere(Protocol):
    """The ranks of one world on other nodes; nothing here waits, but for ``end``."""

    @property
    def nodes(self) -> int:
        """Return the number of nodes, this one among them."""

    @property
    def address(self) -> str:
        """Return the address of this node at which the others reach it."""

    @property
    def here(self) -> str:
        """Return what this node is called where a rank is placed."""

    def start(self, mark: str, port: int) -> list[RankState]:
        """Have the other nodes start their ranks; return those, in order of their numbers."""

    def read(self) -> list[Message]:
        """Return what these ranks said, and take note of those that ended."""

    def lost(self) -> str:
        """Return why a node can take no more part, empty where all can."""

    def release(self) -> None:
        """Let these ranks go that wait for each other to have been observed."""

    def kill(self) -> None:
        """Kill these ranks."""

    def end(self) -> list[Message]:
        """End every process of this world on the other nodes, and return what was still said."""
