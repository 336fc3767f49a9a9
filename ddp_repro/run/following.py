"""What goes along with a world while it trains, and may find that enough is known of it."""

from contextlib import AbstractContextManager
from typing import Protocol

from ddp_repro.trace.launch import Parting


class Following(AbstractContextManager[object], Protocol):
    """Entered once the ranks of a world were started, left when none of them is there any more."""

    def parting(self) -> Parting | None:
        """Return the difference because of which the world is to be ended; asked often, so it answers at once."""
