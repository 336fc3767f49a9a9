"""Answers `compare`: do these recorded launches agree. Judges traces on disk; needs neither torch nor a GPU."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("compare")

from pathlib import Path

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CompareConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.judgement import Rules
from ddp_repro.report.verdict import Context
from ddp_repro.run.driver import Invocation
from ddp_repro.run.place import place_run
from ddp_repro.validation import validate_level
from ddp_repro.verdict import judge_and_tell, launch_folders, load_launches

USAGE = "Name the runs to compare: python -m ddp_repro.compare 'runs=[runs/1,runs/2]'"


def compare(config: CompareConfig, invocation: Invocation) -> ExitCode:
    """Judge all launches of all named runs against each other; return the verdict's code."""
    validate_level(config.level)
    if not config.runs:
        raise ReproError("no run was named.", hint=USAGE)
    folders = [folder for run in config.runs for folder in launch_folders(Path(run))]
    if len(folders) < 2:
        raise ReproError(f"{config.runs[0]} holds one launch and a comparison needs two.", hint=USAGE)
    run = place_run(config.output)
    rules = Rules(
        allow=tuple(config.compare.allow),
        level=config.level,
        reproduce=invocation.text,
        ignore=tuple(config.judge.ignore),
    )
    context = Context(run=run, command=invocation.text, level=config.level, ignore=rules.ignore)
    return judge_and_tell(load_launches(folders), rules, context, config.report)


def main() -> None:
    """Run as ``python -m ddp_repro.compare``."""
    run_command(Command(name="compare", schema=CompareConfig, run=compare))
