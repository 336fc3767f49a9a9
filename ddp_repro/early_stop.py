"""Ends a launch soon after its first difference: beside the world, its traces are compared as they grow."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from ddp_repro.config import CaptureLevel, CheckConfig
from ddp_repro.errors import ReproError
from ddp_repro.judge.growing import Growing
from ddp_repro.judge.judgement import Rules
from ddp_repro.judge.parting import parting_of
from ddp_repro.run.variants import Variant
from ddp_repro.trace.growing import GrowingTrace
from ddp_repro.trace.launch import (
    PARTED,
    Launch,
    LaunchRecord,
    Parting,
    launch_so_far,
    load_launch,
    read_launch_record,
)
from ddp_repro.trace.layout import LaunchFolder, RunFolder

STEPS: Final = 50  # fewer are over before much is gained
_SHARE: Final = 0.01  # of one core's time
_POLL_S: Final = 0.05
_LONGEST_S: Final = 10.0  # between two looks, however dear they are
_NICENESS: Final = 10  # at 19 a thread that shares its core with a rank comes to nothing for a minute

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class EarlyStop:
    """Which launches of a check are followed, and by which rules they are judged; ``notes`` say what went wrong."""

    config: CheckConfig
    folder: RunFolder
    variants: Sequence[Variant]
    rules: Rules

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self._loaded: dict[int, Launch] = {}

    def follow(self, launch: int) -> "Follower | None":
        """Return who follows the launch of that number; ``None`` where it is to run to its end in any case."""
        number = self._reference_of(launch)
        levels = {variant.config.capture.level for variant in self.variants}
        if self.config.fail_fast is False or number is None or CaptureLevel.off in levels:
            return None
        if self.config.fail_fast is None and _steps(self._record(number)) <= STEPS:
            return None
        folder = self.folder.launch(launch)
        return Follower(lambda: self._reference(number), folder, self.rules, tell=self.notes.append)

    def forget(self) -> None:
        """Let go of the launches that others were compared with."""
        self._loaded.clear()

    def _reference_of(self, launch: int) -> int | None:
        """Return the launch that the judge holds this one to: the first of its variant, or else the very first one."""
        first = self.variants[0].launches[0]
        own = next(variant.launches[0] for variant in self.variants if launch in variant.launches)
        if own != launch and self._record(own).outcome != PARTED:
            return own
        return first if first != launch else None

    def _record(self, number: int) -> LaunchRecord:
        return read_launch_record(self.folder.launch(number).record)

    def _reference(self, number: int) -> Launch:
        if number not in self._loaded:
            self._loaded = {number: load_launch(self.folder.launch(number))}  # one at a time: they are large
        return self._loaded[number]


def validate_early_stop(config: CheckConfig, planned: Sequence[Variant]) -> None:
    """Raise ReproError where ``fail_fast=true`` would do nothing."""
    if not config.fail_fast:
        return
    if sum(len(variant.launches) for variant in planned) < 2:
        raise ReproError(
            "fail_fast=true would do nothing: there is one launch, which runs to its end.", hint="Use launches=2."
        )
    if CaptureLevel.off in {variant.config.capture.level for variant in planned}:
        raise ReproError(
            "fail_fast=true would do nothing: with capture=off nothing is known of a launch before its end.",
            hint="Use capture=step, or leave fail_fast out.",
        )


def _steps(record: LaunchRecord) -> int:
    return max((rank.last_step or 0 for rank in record.ranks), default=0)


class Follower:
    """Goes along with one world, in a thread of its own, and compares what it writes with a whole launch."""

    def __init__(
        self, reference: Callable[[], Launch], folder: LaunchFolder, rules: Rules, tell: Callable[[str], None]
    ) -> None:
        self._load, self._folder, self._rules, self._tell = reference, folder, rules, tell
        self._ranks: dict[int, _Rank] = {}
        self._found: Parting | None = None
        self._spent = 0.0
        self._again_at = 0  # a suspicion that was none is looked into again once there are so many rows
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"following launch {folder.index}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def parting(self) -> Parting | None:
        """Return the first difference, once the judge has said that it is one."""
        return self._found

    def _run(self) -> None:
        _step_back()
        try:
            reference = self._load()
            self._ranks = {rank: _Rank(self._folder, rank, reference) for rank in sorted(reference.traces)}
            while self._found is None and not self._over.wait(self._pause()):
                self._look(reference)
        except Exception as error:  # noqa: BLE001  a launch is judged as well when nobody followed it
            _log.warning("launch %d is not followed any more", self._folder.index, exc_info=error)
            told = str(error).partition("\n")[0]
            self._tell(f"launch {self._folder.index} would not have been ended early (fail_fast): {told}")

    def _pause(self) -> float:
        """Return for how long to wait (s), so that looking takes no more than its share of the time."""
        before, self._spent = self._spent, time.thread_time()
        return min(max((self._spent - before) / _SHARE, _POLL_S), _LONGEST_S)

    def _look(self, reference: Launch) -> None:
        for rank in self._ranks.values():
            rank.read()
        suspected = [rank.growing.suspected for rank in self._ranks.values()]
        reach = min(rank.growing.reach for rank in self._ranks.values())
        steps = [step for step in suspected if step is not None]
        rows = sum(rank.rows for rank in self._ranks.values())
        # A step more than is compared: a row that another thread was late to write is there by then.
        if (steps and min(steps) + 1 < reach) or 0 < self._again_at <= rows:
            launch = launch_so_far(self._folder, {number: rank.growing.grown() for number, rank in self._ranks.items()})
            self._found = parting_of(reference, launch, self._rules)
            self._again_at = 2 * rows
            for rank in self._ranks.values():
                rank.growing.excuse()


class _Rank:
    """One rank's trace, read as it grows."""

    def __init__(self, folder: LaunchFolder, number: int, reference: Launch) -> None:
        self._trace = GrowingTrace(folder.trace(number))
        self.growing = Growing(reference.traces[number])
        self.rows = 0

    def read(self) -> None:
        """Take what was added."""
        added = self._trace.read()
        if added is not None:
            self.rows += len(added)
            self.growing.take(added)


def _step_back() -> None:
    """Have this thread wait for whatever the ranks want to do (Linux, where threads have priorities)."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
