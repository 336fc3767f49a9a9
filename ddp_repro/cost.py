"""Answers `cost`: what determinism costs on this model, in time and memory, and which switch costs it."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("cost")

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CostConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.cost import FEWEST_STEPS, Cost, Timed, judge_cost, launch_timed
from ddp_repro.judge.spread import Caution
from ddp_repro.measured import identity_told, tell_measured
from ddp_repro.report.cost_document import CostAsked, cost_document
from ddp_repro.report.progress import Progress
from ddp_repro.run.arms import Turn, planned_arms, timed, turns, validate_cost
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.place import place_run
from ddp_repro.trace.launch import read_launch_record
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.timing import read_timing
from ddp_repro.validation import validate_launch


def cost(config: CostConfig, invocation: Invocation) -> ExitCode:
    """Launch each arm in turns and time its steps; judge, keep and tell."""
    validate_launch(config)
    validate_cost(config)
    arms, left_out = planned_arms(config, has_gpu=_has_gpu())
    folder = place_run(config.output)
    planned = turns(arms, config.cost.repeats)
    watch = _Watch(config=config, folder=folder, turns=planned)
    load = os.getloadavg()[0]
    plan = Plan(folder=folder, config=config, variants=[timed(config, turn) for turn in planned])
    problems = _launch(plan, invocation, watch)
    found = judge_cost(watch.timed, [(arm.name, arm.relative_to) for arm in arms], config.cost.confidence, problems)
    asked = CostAsked(
        run=folder,
        command=invocation.text,
        confidence=config.cost.confidence,
        left_out=left_out,
        identity=identity_told(folder),
    )
    return tell_measured(cost_document(_with_load(found, load), watch.timed, asked), folder, config.report)


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415  the other commands' drivers do without it

    return torch.cuda.is_available()


def _with_load(found: Cost, load: float) -> Cost:
    """Return the cost with a caution where other work ran as the first launch began."""
    cores = os.cpu_count() or 1
    if load <= cores / 2:
        return found
    caution = Caution(
        cause="loaded",
        message=f"the machine was at work as this began: a load of {load:.1f} on {cores} cores",
        advice="Measure again when it is idle: turns keep the ratio fair, and the interval is wider than it need be.",
    )
    return replace(found, cautions=(*found.cautions, caution))


def _launch(plan: Plan, invocation: Invocation, watch: "_Watch") -> list[str]:
    """Make the launches; return why nothing can be concluded, where one of them failed or was not timed."""
    try:
        with suppress(Interrupted), Progress(enabled=watch.config.output.progress) as progress:
            watch.progress = progress
            make_launches(plan, invocation, watch)
    except ReproError as error:
        if not watch.started:
            raise
        return [" ".join(part for part in (str(error), error.hint) if part)]
    if len(watch.timed) == len(watch.turns):
        return []
    turn = watch.turns[len(watch.timed)]
    told = "was not made"
    with suppress(ReproError):
        record = read_launch_record(watch.folder.launch(turn.launch).record)
        told = f"{record.outcome}: {record.reason or 'no reason is known'}"
    return [f"launch {turn.launch} ({turn.arm.name}) {told}"]


@dataclass(kw_only=True)
class _Watch:
    """Shows how far the launches are, and reads the times of each as it ends."""

    config: CostConfig
    folder: RunFolder
    turns: Sequence[Turn]
    timed: list[Timed] = field(default_factory=list)
    started: bool = False
    progress: Progress | None = None

    def launch_started(self, launch: int, of: int) -> None:
        """Take note that launches have begun."""
        self.started = True
        if self.progress is not None:
            self.progress.launch_started(launch, of)

    def note(self, text: str) -> None:
        """Say ``text`` now."""
        if self.progress is not None:
            self.progress.note(text)

    def step(self, launch: int, step: int, total: int | None) -> None:
        """Show that rank 0 completed a step."""
        if self.progress is not None:
            self.progress.step(launch, step, total)

    def launch_finished(self, launch: int, outcome: str) -> None:
        """Read how long the launch's steps took; raise ReproError where there were too few."""
        if self.progress is not None:
            self.progress.launch_finished(launch, outcome)
        if outcome != "finished":
            return
        turn, folder = self.turns[launch], self.folder.launch(launch)
        ranks = [read_timing(folder, rank) for rank in range(self.config.nproc)]
        # The first interval is that of the second step.
        steps = [rank.seconds[self.config.cost.warmup - 1 :] for rank in ranks]
        fewest = min(len(one) for one in steps)
        if fewest < FEWEST_STEPS:
            raise ReproError(
                f"launch {launch} took {min(len(rank.seconds) for rank in ranks) + 1} steps, of which "
                f"{self.config.cost.warmup} are for warming up: too few to time.",
                hint="Let it train longer, or lower cost.warmup.",
            )
        memory = [(rank.rss_bytes, rank.gpu_bytes) for rank in ranks]
        self.timed.append(launch_timed(launch, turn.arm.name, turn.repeat, steps, memory))


def main() -> None:
    """Run as ``python -m ddp_repro.cost``."""
    run_command(Command(name="cost", schema=CostConfig, run=cost))
