"""Answers `check`: do repeated launches give the same bits, and if not, where first and why."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("check")

from contextlib import suppress

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CheckConfig, validate_launch
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.judgement import Rules
from ddp_repro.report.progress import Progress
from ddp_repro.report.verdict import Context
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.place import place_run
from ddp_repro.verdict import judge_and_tell, load_launches


def check(config: CheckConfig, invocation: Invocation) -> ExitCode:
    """Launch the same thing ``config.launches`` times, judge, report; return the verdict's code.

    What was recorded before an interruption is judged as far as it goes: never as reproducible.
    """
    validate_launch(config)
    if config.launches < 1:
        raise ReproError(f"launches={config.launches} is not possible.", hint="Use launches=2 or more.")
    folder = place_run(config.output)
    plan = Plan(folder=folder, config=config, launches=config.launches)
    with suppress(Interrupted), Progress(enabled=config.output.progress) as progress:
        make_launches(plan, invocation, progress)
    rules = Rules(
        allow=tuple(config.compare.allow), level=config.level, reproduce=invocation.text, expected=config.launches
    )
    context = Context(run=folder, command=invocation.text, level=config.level)
    return judge_and_tell(load_launches(folder.launches()), rules, context)


def main() -> None:
    """Run as ``python -m ddp_repro.check``."""
    run_command(Command(name="check", schema=CheckConfig, run=check))
