"""What one rank does in one launch: verify, seed, build, join, identify itself, train under observation, finish."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ddp_repro.config import RecordConfig, is_script, load_record_config
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.run import determinism
from ddp_repro.run.boundaries import boundaries, window
from ddp_repro.run.course import Course
from ddp_repro.run.identity import Seen, rank_identity
from ddp_repro.run.processes import MARK
from ddp_repro.run.progress import ProgressPipe
from ddp_repro.run.provenance import code_provenance
from ddp_repro.run.root_seed import seed_everything, seed_training
from ddp_repro.run.saving import Saving
from ddp_repro.run.script_rank import run_script_rank
from ddp_repro.run.stopwatch import Stopwatch
from ddp_repro.run.train import prepare, total_steps, train
from ddp_repro.run.world import Place, join, leave, read_place
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.identity import COMPARED
from ddp_repro.trace.launch import FINAL_SCHEMA
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from ddp_repro.workload.definition import Workload
from ddp_repro.workload.factory import load_workload

log = logging.getLogger(__name__)


def rank_number() -> int:
    """Return this process's rank as the launcher set it."""
    return int(os.environ["RANK"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One rank's part of a launch."""

    folder: LaunchFolder
    config: RecordConfig
    place: Place
    identity: dict[str, Any]
    pipe: ProgressPipe


def launch_rank(path: Path, config_path: Path, pipe: ProgressPipe) -> int:
    """Run this rank's part of the launch in ``path`` and return its exit code.

    Raises ReproError for what a user can mend.
    """
    folder, config = LaunchFolder(path), load_record_config(config_path)
    if is_script(config):
        return run_script_rank(folder, config, pipe)
    in_force = _settle(config)
    workload = _build(config)
    place = read_place(config.launcher.backend)
    join(place, config.launcher)
    pipe.send("started")
    provenance = code_provenance(config) if place.rank == 0 else {}
    seen = Seen(rank=place.rank, data=workload.data_identity, in_force=in_force, provenance=provenance)
    identity = rank_identity(config, seen)
    write_json(folder.rank_identity(place.rank), identity)
    identity = read_json(folder.rank_identity(place.rank))  # plain JSON types: it goes into checkpoints too
    _train(_Rank(folder=folder, config=config, place=place, identity=identity, pipe=pipe), workload)
    leave()
    return 0


def _settle(config: RecordConfig) -> dict[str, Any]:
    """Verify the environment, apply the determinism profile, and return what is in force."""
    determinism.verify_environment(config.determinism, config.threads)
    return dict(determinism.apply(config.determinism))


def _build(config: RecordConfig) -> Workload:
    """Seed the model's stream, the same on all ranks, then build the workload."""
    seed_everything(config.seed)
    options = {key: value for key, value in config.workload.items() if key != "_target_"}
    return load_workload(str(config.workload["_target_"]), options)


def _train(rank: _Rank, workload: Workload) -> None:
    """Train under observation; the trace is closed on every way out, so that what was seen is kept."""
    meta = TraceMeta(
        identity=rank.identity["digest"],
        launch=rank.folder.index,
        rank=rank.place.rank,
        world_size=rank.place.world_size,
        capture=rank.config.capture.level.value,
        launch_id=os.environ.get(MARK, ""),
    )
    writer = TraceWriter(rank.folder.trace(rank.place.rank), meta)
    recorder = Recorder(writer, on_step=lambda step: rank.pipe.send("step", step=step))
    stopwatch = Stopwatch() if rank.config.capture.timing else None
    if stopwatch is not None:
        stopwatch.attach()
    reason = "failed"
    try:
        with watch(
            recorder,
            capture=meta.capture,
            epoch_guard=rank.config.epoch_guard.value,
            boundaries=boundaries(rank.config.capture),
            window=window(rank.config.capture, rank.folder, rank.place.rank, rank.pipe),
        ):
            _train_and_tell(rank, workload, recorder)
        if stopwatch is not None:
            stopwatch.write(rank.folder.timing(rank.place.rank))
        reason = "finished"
    finally:
        writer.close(reason, end_told=reason == "finished")
    rank.pipe.send("observed", step=recorder.step)


def _train_and_tell(rank: _Rank, workload: Workload, recorder: Recorder) -> None:
    session = prepare(rank.config, rank.place, workload)
    rank.pipe.send("planned", step=total_steps(rank.config, len(session.loader)))
    seed_training(rank.place.shard)
    course = Course()
    saving = Saving(session, course, {group: rank.identity[group] for group in COMPARED})
    saving.load()
    recorder.step = course.step
    train(session, course, saving.after_step)
    metrics = {f"epoch {int(result['epoch'])}": result["metric"].hex() for result in course.history}
    told = {
        "metric": metrics,
        "validation": course.history,
        "better": workload.better,
        "not_exact": list(course.not_exact),
    }
    write_json(rank.folder.final(rank.place.rank), {**_final(session.model.module), **told})


def _final(model: nn.Module) -> dict[str, Any]:
    """Return the digests that the model ended with, whether or not it was observed."""
    with torch.no_grad():
        return {
            "schema": FINAL_SCHEMA,
            "param": {name: tensor_digest(value).hex() for name, value in model.named_parameters()},
            "buffer": {name: tensor_digest(value).hex() for name, value in model.named_buffers()},
        }
