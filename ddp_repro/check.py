"""check: do repeated launches give the same bits, and if not, where first and why?"""

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CheckConfig, validate_launch
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.judgement import Rules
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch import Plan, make_launches, place_run
from ddp_repro.run.verdict import announce, judge_folders
from ddp_repro.report.progress import Progress


def check(config: CheckConfig, invocation: Invocation) -> ExitCode:
    """Launch the same thing ``config.launches`` times, judge, report; return the verdict's code."""
    validate_launch(config)
    if config.launches < 1:
        raise ReproError(f"launches={config.launches} is not possible.", hint="Use launches=2 or more.")
    folder = place_run(config.output)
    with Progress(enabled=config.output.progress) as progress:
        make_launches(Plan(folder=folder, config=config, launches=config.launches), invocation, progress)
    rules = Rules(allow=tuple(config.compare.allow), level=config.level, reproduce=invocation.text)
    return announce(judge_folders([folder], rules), folder, invocation)


def main() -> None:
    """Run as ``python -m ddp_repro.check``."""
    run_command(Command(name="check", schema=CheckConfig, run=check))


if __name__ == "__main__":
    main()
