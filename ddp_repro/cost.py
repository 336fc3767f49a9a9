"""Answers `cost`: what determinism costs on this model, in time and memory, and which switch costs it."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("cost")

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CostConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.cost import FEWEST_STEPS, Cost, Timed, judge_cost, launch_timed
from ddp_repro.judge.spread import Caution
from ddp_repro.measured import identity_told, tell_measured
from ddp_repro.measuring import make_read
from ddp_repro.report.cost_document import CostAsked, cost_document
from ddp_repro.run.arms import Turn, planned_arms, timed, turns, validate_cost
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch import Plan
from ddp_repro.run.place import place_run
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
    times = _Times(config=config, folder=folder, turns=planned)
    load = os.getloadavg()[0]
    plan = Plan(folder=folder, config=config, variants=[timed(config, turn) for turn in planned])
    problems = make_read(plan, invocation, times)
    found = judge_cost(times.timed, [(arm.name, arm.relative_to) for arm in arms], config.cost.confidence, problems)
    asked = CostAsked(
        run=folder,
        command=invocation.text,
        confidence=config.cost.confidence,
        left_out=left_out,
        identity=identity_told(folder),
    )
    return tell_measured(cost_document(_with_load(found, load), times.timed, asked), folder, config.report)


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


@dataclass(kw_only=True)
class _Times:
    """Reads the times of each launch."""

    config: CostConfig
    folder: RunFolder
    turns: Sequence[Turn]
    timed: list[Timed] = field(default_factory=list)

    def begin(self, launch: int) -> None:
        """Nothing is there before: the launch's folder is its own."""

    def called(self, launch: int) -> str:
        """Return the arm that the launch is of."""
        return self.turns[launch].arm.name

    def read(self, launch: int) -> None:
        """Read how long the launch's steps took; raise ReproError where there were too few."""
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
