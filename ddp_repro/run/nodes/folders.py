"""Where the ranks of a node write: the run's folder, where this node sees it, else one of its own."""

import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddp_repro.trace.layout import LaunchFolder


@dataclass(slots=True)
class RunFolders:
    """The folders of runs here, by the path that driver 0 calls each by.

    Where driver 0's folder is not seen here, the run gets a folder of its own under ``root``, which lasts until driver
    0 has all that was written to it.
    """

    root: Path
    node: int
    _shared: dict[str, Path] = field(default_factory=dict)
    _own: dict[str, Path] = field(default_factory=dict)

    def place(self, order: dict[str, Any]) -> bool:
        """Find the folder of a run, or make one; tell whether it is driver 0's own."""
        run = str(order["run"])
        with suppress(OSError, ValueError):
            if (Path(run) / str(order["probe"])).read_text() == order["secret"]:
                self._shared[run] = Path(run)
                return True
        own = self.root.absolute() / f".node-{self.node}-{secrets.token_hex(4)}"
        own.mkdir(parents=True)
        self._own[run] = own
        return False

    def config(self, order: dict[str, Any]) -> Path:
        """Return the configuration that ranks of a launch read, which is written where it is not there."""
        run, name = str(order["run"]), Path(str(order["config"])).name
        if run in self._shared:
            return self._shared[run] / name
        file = self._own[run] / name
        file.write_text(str(order["text"]), encoding="utf-8")
        return file

    def launch(self, order: dict[str, Any]) -> LaunchFolder:
        """Return the folder of a launch."""
        run = str(order["run"])
        folder = LaunchFolder(self._shared.get(run, self._own.get(run, self.root)) / f"launch-{int(order['launch'])}")
        if run in self._own:
            folder.path.mkdir(exist_ok=True)
        return folder

    def drop(self, order: dict[str, Any]) -> None:
        """Remove what ranks wrote in a launch, which driver 0 has by now."""
        if str(order["run"]) in self._own:
            shutil.rmtree(self.launch(order).path)

    def close(self) -> list[Path]:
        """Remove the folders that were made, and return those in which something lies that driver 0 does not have."""
        kept = []
        for own in self._own.values():
            if any(own.glob("launch-*/rank-*")):
                kept.append(own)
            else:
                shutil.rmtree(own, ignore_errors=True)
                with suppress(OSError):
                    own.parent.rmdir()  # where it was made for this
        return kept
