"""Measures what it costs the ranks that the driver judges their traces while they train (``fail_fast``).

``python benchmarks/judge_while_running.py [blocks]`` launches the same training twice for each workload. In the second
launch blocks of steps in which it is followed, and blocks in which it is not, alternate: both see the same machine. A
follower that was off reads up what it missed, so the blocks in which it is on carry the work of both: the ratio is an
upper bound. It is that of neighbouring blocks: the median over all pairs, and its 95 % interval by bootstrap.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ddp_repro.config import CheckConfig, LauncherConfig, TrainConfig
from ddp_repro.early_stop import Follower
from ddp_repro.judge.judgement import Rules
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.variants import only_variant
from ddp_repro.trace.launch import Launch, load_launch
from ddp_repro.trace.layout import RunFolder

TEXT, DIGITS = "ddp_repro.workload.text.build", "ddp_repro.workload.digits.build"
CASES: dict[str, tuple[dict[str, Any], int]] = {  # workload and steps a block
    "digits tiny": ({"_target_": DIGITS, "size": "tiny"}, 100),
    "text tiny": ({"_target_": TEXT, "size": "tiny"}, 50),
    "text base, 4 x 64 tokens": ({"_target_": TEXT, "size": "base", "batch_size": 4, "context": 64}, 4),
}
BLOCKS = 40
RANKS = 2


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else BLOCKS
    print(f"{'workload':28} {'off ms':>9} {'on ms':>9} {'ratio':>7}   95 % interval    share of the driver")
    for name, (workload, steps) in CASES.items():
        off, on, share = measured(workload, blocks, steps)
        ratios = [b / a for a, b in zip(off, on, strict=True)]
        low, high = interval(ratios)
        each = [statistics.median(times) / steps * 1e3 for times in (off, on)]
        ratio = f"{statistics.median(ratios):7.3f}   {low:.3f} to {high:.3f}"
        print(f"{name:28} {each[0]:9.2f} {each[1]:9.2f} {ratio}   {share:.2%} of one core", flush=True)


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median."""
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


class Switched(Follower):
    """A follower that looks only where it is switched on; ``spent`` is the processor time that this took (s)."""

    is_on = False
    spent = 0.0

    def _look(self, reference: Launch) -> None:
        if self.is_on:
            began = time.thread_time()
            super()._look(reference)
            self.spent += time.thread_time() - began


class Clock:
    """Takes the time at the end of each block of ``steps``, and switches the follower of the second launch."""

    def __init__(self, run: RunFolder, steps: int) -> None:
        self._run, self._steps = run, steps
        self.ends: list[float] = []
        self.follower: Switched | None = None

    def follow(self, launch: int) -> Switched | None:
        """Return the follower of the second launch."""
        if launch:
            self.follower = Switched(lambda: load_launch(self._run.launch(0)), self._run.launch(1), Rules(), print)
        return self.follower

    def launch_started(self, launch: int, of: int) -> None:
        """Begin anew."""
        del launch, of
        self.ends = []

    def step(self, launch: int, step: int, total: int | None) -> None:
        """Take the time where a block ends."""
        del launch, total
        if step % self._steps == 0:
            self.ends.append(time.perf_counter())
            if self.follower is not None:
                self.follower.is_on = len(self.ends) % 2 == 0

    def launch_finished(self, launch: int, outcome: str) -> None:
        """Take note that the launch ended."""
        del launch
        assert outcome == "finished", outcome

    def note(self, text: str) -> None:
        """Say nothing: these launches are not that large."""


def measured(workload: dict[str, Any], blocks: int, steps: int) -> tuple[list[float], list[float], float]:
    """Return the seconds of the blocks without and with a follower, and how much of a core it took while it was on."""
    with tempfile.TemporaryDirectory() as root:
        run = RunFolder(Path(root))
        clock = Clock(run, steps)
        config = CheckConfig(
            nproc=RANKS,
            threads=1,
            workload=workload,
            train=TrainConfig(epochs=1_000_000, max_steps=(2 * blocks + 3) * steps, evaluate=False),
            launcher=LauncherConfig(timeout_s=900),
        )
        plan = Plan(folder=run, config=config, variants=only_variant(config, 2), follow=clock.follow)
        make_launches(plan, Invocation(command="check", overrides=()), clock)
    assert clock.follower is not None
    times = np.diff(clock.ends)[2:]  # the first blocks warm up; then off and on in turns
    off, on = times[::2], times[1::2]
    return list(off), list(on), clock.follower.spent / float(sum(on))


if __name__ == "__main__":
    main()
