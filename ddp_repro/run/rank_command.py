"""The command line of a rank."""

import sys
from pathlib import Path

from ddp_repro.trace.layout import LaunchFolder


def rank_argv(folder: LaunchFolder, config: Path) -> list[str]:
    """Return how a rank of a launch is started, with the interpreter of its driver."""
    return [sys.executable, "-u", "-m", "ddp_repro.run.rank", str(folder.path.resolve()), str(config.resolve())]
