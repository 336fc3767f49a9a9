"""What training ended with in the process of a script: told as observing ends, and again as the process ends."""

import atexit
import os
from pathlib import Path
from typing import Any

from ddp_repro.observe.ends import Ends
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import FINAL_SCHEMA


class ScriptEnd:
    """Writes the digests of what was trained to ``file``; in a child that the script forks it writes nothing.

    Scripts save, average and prune after their process group is gone, and in exit handlers: so it looks again then.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pid = os.getpid()
        self._ends = Ends()
        self._told: dict[str, Any] | None = None

    def attach(self) -> None:
        """Follow what is trained, to the end of the process."""
        self._detach = self._ends.attach()
        atexit.register(self.look_again)  # before the script's own, so that it comes after them

    @property
    def is_told(self) -> bool:
        """Whether the file was written."""
        return self._told is not None

    def tell(self) -> None:
        """Write what was trained as it is now, where that is not written already."""
        found = {"schema": FINAL_SCHEMA, **self._ends.read()}
        if found != self._told:
            write_json(self._file, found)
        self._told = found

    def look_again(self) -> None:
        """Tell once more, the last time, what was told before."""
        if self.is_told and os.getpid() == self._pid:
            self.tell()
            self._detach()  # os._exit, by which the process leaves after this, need not digest all of it again
