"""One rank of a script under observation: when its trace is opened, when it is closed, and what the driver is told."""

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch.distributed as dist

from ddp_repro.config import RecordConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.run import determinism
from ddp_repro.run.boundaries import boundaries, window
from ddp_repro.run.departure import watch_departure, watch_vanishing
from ddp_repro.run.determinism import Determinism
from ddp_repro.run.environment import THREAD_VARIABLES
from ddp_repro.run.identity import Seen, rank_identity
from ddp_repro.run.processes import MARK
from ddp_repro.run.progress import ProgressPipe
from ddp_repro.run.rounds import StepWatch
from ddp_repro.run.script_end import ScriptEnd
from ddp_repro.run.script_settings import resolved_settings
from ddp_repro.run.start import environment_at_start
from ddp_repro.run.stopwatch import Stopwatch
from ddp_repro.run.world import exit_now
from ddp_repro.trace.document import write_json
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from ddp_repro.workload.script import read_script

# How long a rank that is through keeps its connections open for the others (s).
RELEASE_S: Final = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRank:
    """One rank's part of a launch of a script; ``provenance`` is found before the script starts.

    ``world_size`` is that of the world that was started, on all nodes.
    """

    folder: LaunchFolder
    config: RecordConfig
    rank: int
    world_size: int
    pipe: ProgressPipe
    provenance: Mapping[str, Any]


class ScriptWatch:
    """Observes the script of this process from before its first line to its end.

    What the script sets (determinism, threads, its process group) is part of its identity and known at its first
    optimizer step: until then rows are kept, then the trace is opened under that identity. The trace is closed at the
    script's end, after ``train.max_steps`` steps, or before the process group is destroyed. In a child that the script
    forks nothing is observed, closed or told.
    """

    def __init__(self, rank: ScriptRank) -> None:
        self._rank = rank
        self._pid = os.getpid()
        self._launch_id = os.environ.get(MARK, "")  # before the script can write to its environment
        self._attached = ExitStack()
        self._end = ScriptEnd(rank.folder.final(rank.rank))
        self._recorder = Recorder(None, pending=True)
        self._writer: TraceWriter | None = None
        self._closed = False
        self._stopwatch = Stopwatch() if rank.config.capture.timing else None
        stop = rank.config.checkpoint.stop
        self._steps = StepWatch(
            limit=rank.config.train.max_steps if stop is None else stop,
            is_late=stop is not None,
            before_first=self._before_first_step,
            after_each=self._after_step,
            at_limit=self._end_by_limit,
        )

    @property
    def is_rank(self) -> bool:
        """Tell whether this process is the rank, and not a child that it forked."""
        return os.getpid() == self._pid

    def attach(self) -> None:
        """Observe from now on."""
        self._attached.enter_context(self._watched())
        self._end.attach()
        if self._stopwatch is not None:
            self._stopwatch.attach()
        self._steps.attach()
        watch_departure(self._before_departure, self._after_departure)
        watch_vanishing(self._before_vanishing)

    def _watched(self) -> AbstractContextManager[Recorder]:
        config = self._rank.config
        return watch(
            self._recorder,
            capture=config.capture.level.value,
            epoch_guard=config.epoch_guard.value,
            boundaries=boundaries(config.capture),
            window=window(config.capture, self._rank.folder, self._rank.rank, self._rank.pipe),
        )

    def finish(self) -> None:
        """Close the trace of a script that came to its end; raise ``ReproError`` where it trained nothing."""
        if not self.is_rank:
            return
        if not self._steps.steps:
            raise ReproError(
                "the script took no optimizer step in this process: nothing was trained, so nothing can be judged.",
                hint="A script that starts processes of its own (mp.spawn) must be one that torchrun can start.",
            )
        self.close("finished")
        self._tell_observed()

    def fail(self, text: str, hint: str = "") -> None:
        """Tell the driver what went wrong and close the trace, so that what was seen is kept."""
        if not self.is_rank:
            return
        self._rank.pipe.send("error", step=self._recorder.step, text=text, hint=hint)
        try:
            self.close("failed")
        except ReproError as error:
            log.error("%s %s", error, error.hint)

    def close(self, reason: str) -> None:
        """Take the probes off, and write all that was observed and the closing row; a second call is ignored."""
        if self._closed or not self.is_rank:
            return
        self._closed = True
        if self._writer is None:
            self._open()
        assert self._writer is not None
        try:
            if reason != "failed":
                if self._stopwatch is not None:
                    self._stopwatch.write(self._rank.folder.timing(self._rank.rank))
                self._end.tell()
            self._attached.close()
        finally:
            self._writer.close(reason, end_told=self._end.is_told)

    def _open(self) -> None:
        """Write this rank's identity, as it is now, and open its trace under it."""
        rank = self._rank
        script = read_script(rank.config.workload)
        seen = Seen(
            rank=rank.rank,
            data={"id": script.data_id} if script.data_id else None,
            in_force=determinism.apply(Determinism()),
            provenance=rank.provenance,
        )
        identity = rank_identity(rank.config, seen)
        settings = resolved_settings()
        if settings:
            identity["hydra"] = settings
        write_json(rank.folder.rank_identity(rank.rank), identity)
        meta = TraceMeta(
            identity=identity["digest"],
            launch=rank.folder.index,
            rank=rank.rank,
            world_size=identity["experiment"]["world_size"],
            capture=rank.config.capture.level.value,
            launch_id=self._launch_id,
        )
        self._writer = TraceWriter(rank.folder.trace(rank.rank), meta)
        self._recorder.open(self._writer)
        _warn_of_late_threads()

    def _before_first_step(self) -> None:
        if not self.is_rank:
            return
        started, nodes = self._rank.world_size, self._rank.world_size // self._rank.config.nproc
        if started > 1 and not dist.is_initialized():
            self._refuse(
                f"the script made no process group: its {started} ranks train on their own; nothing is distributed.",
                "Call torch.distributed.init_process_group before training, or set nproc=1.",
            )
        if dist.is_initialized() and dist.get_world_size() != started:
            told = f"nproc={started}" if nodes == 1 else f"{started} (nproc={self._rank.config.nproc} on {nodes} nodes)"
            self._refuse(
                f"the script's process group has {dist.get_world_size()} ranks, and {told} were started.",
                "Take rank and world size from the environment, as torchrun sets them.",
            )
        self._open()

    def _after_step(self) -> None:
        if not self.is_rank:
            return
        if self._closed:
            self._refuse(
                "the script trained on after destroy_process_group, where observing had ended.",
                "Destroy the process group after the last optimizer step.",
            )
        self._rank.pipe.send("step", step=self._recorder.step)

    def _end_by_limit(self) -> None:
        if not self.is_rank:
            return
        self.close("max_steps")
        log.info("ended after %d optimizer steps, as asked", self._steps.steps)
        self._tell_observed()
        exit_now(0)

    def _tell_observed(self) -> None:
        self._rank.pipe.send("observed", step=self._recorder.step)
        self._rank.pipe.await_release(RELEASE_S)

    def _refuse(self, text: str, hint: str) -> NoReturn:
        """End this process, from within the script."""
        log.error("%s %s", text, hint)
        self.fail(text, hint)
        exit_now(int(ExitCode.NOT_JUDGED))

    def _before_departure(self, exception: str) -> bool:
        if self._closed or not self.is_rank or not self._steps.steps:
            return False
        self.close("finished")
        self._rank.pipe.send("leaving", step=self._recorder.step, text=exception)
        return True

    def _before_vanishing(self, code: int) -> None:
        if self._closed or not self.is_rank:
            self._end.look_again()
            return
        if code == 0 and self._steps.steps:
            self.close("finished")
            self._tell_observed()
        else:
            self.fail(f"the script ended with os._exit({code}).", f"(see {self._rank.folder.log(self._rank.rank)})")

    def _after_departure(self) -> None:
        self._rank.pipe.send("left", step=self._recorder.step)


def _warn_of_late_threads() -> None:
    """Say so where the script set a thread count too late: torch was loaded before the script began."""
    started = environment_at_start()
    for name in THREAD_VARIABLES:
        if os.environ.get(name) != started.get(name):
            log.warning("the script set %s=%s, which had no effect: set it outside", name, os.environ.get(name))
