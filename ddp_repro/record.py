"""Answers `record`: what did this one launch do. Every rank writes its trace."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("record")

from ddp_repro.cli import Command, run_command
from ddp_repro.config import RecordConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.report.progress import Progress
from ddp_repro.report.terminal import print_recorded
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.place import place_run
from ddp_repro.run.variants import only_variant
from ddp_repro.trace.launch import load_launch
from ddp_repro.validation import validate_launch


def record(config: RecordConfig, invocation: Invocation) -> ExitCode:
    """Make one launch and say where its traces are; 0 only when every rank's trace is whole."""
    validate_launch(config)
    folder = place_run(config.output)
    with Progress(enabled=config.output.progress) as progress:
        make_launches(Plan(folder=folder, config=config, variants=only_variant(config, 1)), invocation, progress)
    launch = load_launch(folder.launch(0))
    if launch.problems:
        raise ReproError(launch.problems[0], hint=f"What was recorded before is in {folder.path}.")
    print_recorded(launch)
    return ExitCode.REPRODUCIBLE


def main() -> None:
    """Run as ``python -m ddp_repro.record``."""
    run_command(Command(name="record", schema=RecordConfig, run=record, spans_nodes=True))
