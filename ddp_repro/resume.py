"""Answers `resume`: whether a training that was stopped and restarted equals one that never stopped."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("resume")

from contextlib import suppress

from ddp_repro.cli import Command, run_command
from ddp_repro.config import ResumeConfig
from ddp_repro.errors import ExitCode
from ddp_repro.judge.epoch_starts import epoch_starts, steps_done
from ddp_repro.judge.judgement import Rules
from ddp_repro.judge.resume_judgement import Stretch as Judged
from ddp_repro.judge.resume_judgement import judge_resumed
from ddp_repro.report.progress import Progress
from ddp_repro.report.verdict import Context
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.place import place_run
from ddp_repro.run.resumption import Stretch, straight, stretches, validate_resume
from ddp_repro.run.stops import Extent, points
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import read_trace
from ddp_repro.validation import validate_launch
from ddp_repro.verdict import as_judged, load_launches, tell


def resume(config: ResumeConfig, invocation: Invocation) -> ExitCode:
    """Launch a training whole, and again with stops and restarts; judge, report; return the verdict's code."""
    validate_launch(config)
    validate_resume(config)
    folder = place_run(config.output)
    if invocation.nodes is not None:
        invocation.nodes.require_shared(folder, "resume")  # a checkpoint is of all ranks
    made: list[Stretch] = []
    whole = straight(config)
    with suppress(Interrupted), Progress(enabled=config.output.progress) as progress:
        plan = Plan(folder=folder, config=whole.config, variants=[whole])
        (record,) = make_launches(plan, invocation, progress)
        if record.outcome == "finished":
            extent = _extent(folder)
            made += stretches(config, points(config.resume, extent), extent, folder)
            plan = Plan(folder=folder, config=whole.config, variants=[whole, *(one.variant for one in made)])
            for one in made:
                if one.checkpoint is not None:
                    one.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            make_launches(plan, invocation, progress, made=1)
    rules = Rules(
        allow=tuple(config.compare.allow),
        level=config.level,
        reproduce=invocation.again(),
        ignore=tuple(config.judge.ignore),
        variants=as_judged([whole, *(one.variant for one in made)]),
    )
    launches, judged = load_launches(folder.launches()), [_judged(config, one) for one in made]
    context = Context(
        run=folder, command=invocation.text, level=config.level, ignore=rules.ignore, stretches=tuple(judged)
    )
    return tell(judge_resumed(launches, judged, rules), launches, context, config.report)


def _extent(folder: RunFolder) -> Extent:
    """Return how long the uninterrupted training was, as rank 0 saw it."""
    trace = read_trace(folder.launch(0).trace(0))
    return Extent(steps=steps_done(trace), epochs=tuple(epoch_starts(trace)))


def _judged(config: ResumeConfig, one: Stretch) -> Judged:
    saved = one.checkpoint is None or any(one.checkpoint.parent.glob("*"))
    longest = one.variant.config.train.max_steps
    limit = None if longest == config.train.max_steps or longest is None else (one.begins or 0) + longest
    return Judged(
        launch=one.variant.launches[0],
        begins=one.begins,
        stops=one.stops,
        is_killed=one.variant.kill_at is not None,
        compared_to=limit,
        problem="" if saved else f"launch {one.variant.launches[0]} saved nothing in {one.checkpoint}",
    )


def main() -> None:
    """Run as ``python -m ddp_repro.resume``."""
    run_command(Command(name="resume", schema=ResumeConfig, run=resume, spans_nodes=True))
