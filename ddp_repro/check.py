"""Answers `check`: do repeated launches give the same bits, and if not, where first and why."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("check")

import os
from contextlib import suppress
from dataclasses import replace

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CheckConfig
from ddp_repro.early_stop import EarlyStop, validate_early_stop
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.golden.asking import Asked, validate_golden
from ddp_repro.golden.holding import hold_to_golden
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.report.progress import Progress
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.place import place_run
from ddp_repro.run.variants import variants
from ddp_repro.second_look import Looking, look_again
from ddp_repro.trace.document import write_json
from ddp_repro.validation import validate_launch
from ddp_repro.verdict import as_judged, load_launches, tell


def check(config: CheckConfig, invocation: Invocation) -> ExitCode:
    """Launch the same thing several times, or variants that must not differ; judge, report; return the verdict's code.

    What was recorded before an interruption is judged as far as it goes: never as reproducible.
    """
    for one in (config, *invocation.twins):
        validate_launch(one)
    validate_golden(config, os.environ)
    if config.launches_each < 1:
        raise ReproError(f"launches={config.launches} is not possible.", hint="Use launches=2 or more.")
    planned = variants(config, invocation.twins)
    validate_early_stop(config, planned)
    folder = place_run(config.output)
    rules = Rules(
        allow=tuple(config.compare.allow),
        level=config.level,
        reproduce=invocation.again(),
        expected=sum(len(variant.launches) for variant in planned),
        variants=as_judged(planned) if config.twins else (),
        ignore=tuple(config.judge.ignore),
    )
    stop = EarlyStop(config=config, folder=folder, variants=planned, rules=rules)
    plan = Plan(folder=folder, config=config, variants=planned, follow=stop.follow)
    with suppress(Interrupted), Progress(enabled=config.output.progress) as progress:
        make_launches(plan, invocation, progress)
    stop.forget()
    context = Context(run=folder, command=invocation.text, level=config.level, ignore=rules.ignore)
    launches = load_launches(folder.launches())
    judgement = judge(launches, rules)
    judgement = replace(judgement, notes=[*judgement.notes, *stop.notes])
    if config.golden.path:
        asked = Asked(config=config, invocation=invocation, run=folder, environ=os.environ)
        judgement = hold_to_golden(judgement, launches, asked)
    write_json(folder.verdict, verdict_document(judgement, context))  # whatever the second look comes to
    with suppress(Interrupted), Progress(enabled=config.output.progress, noun="second look, launch") as progress:
        command = Looking(config=config, variants=planned, invocation=invocation, folder=folder, watcher=progress)
        judgement = look_again(judgement, command)
    return tell(judgement, launches, context, config.report)


def main() -> None:
    """Run as ``python -m ddp_repro.check``."""
    run_command(Command(name="check", schema=CheckConfig, run=check, spans_nodes=True))
