"""The only place that knows Hydra: composes a command's configuration, maps every ending to an exit code."""

from ddp_repro.cli.command import Command
from ddp_repro.cli.running import run_command

__all__ = ["Command", "run_command"]
