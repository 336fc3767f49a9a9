"""Makes the launches of a run: the run folder, each world in turn, and a record of what was set."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ddp_repro.config import RecordConfig, save_config
from ddp_repro.errors import ReproError
from ddp_repro.run import determinism
from ddp_repro.run.driver import Invocation
from ddp_repro.run.environment import rank_environment
from ddp_repro.run.launcher import WorldPlan, run_world
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.launch import LaunchRecord
from ddp_repro.trace.layout import RunFolder

SCHEMA_VERSION = 1


class Watcher(Protocol):
    """Is told how far the launches are."""

    def launch_started(self, launch: int, of: int) -> None:
        """Launch number ``launch`` (from 0) of ``of`` was started."""

    def step(self, launch: int, step: int, total: int | None) -> None:
        """Rank 0 completed its ``step``-th optimizer step."""

    def launch_finished(self, launch: int, outcome: str) -> None:
        """Launch number ``launch`` ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run to be made: its folder, its configuration and the number of launches."""

    folder: RunFolder
    config: RecordConfig
    launches: int


def make_launches(plan: Plan, invocation: Invocation, watcher: Watcher) -> list[LaunchRecord]:
    """Make the launches one after the other, each in a fresh process tree; the first that fails is the last.

    Raises ReproError for a configuration that cannot run and `Interrupted` when the driver is told to stop; what was
    recorded before stays in the folder.
    """
    environ = _environment(plan.config)
    save_config(plan.config, plan.folder.config)
    write_json(plan.folder.run, _run_document(plan, invocation, environ))
    records: list[LaunchRecord] = []
    for launch in range(plan.launches):
        watcher.launch_started(launch, plan.launches)
        record = _make_launch(plan, launch, environ, watcher)
        watcher.launch_finished(launch, record.outcome)
        records.append(record)
        if record.outcome != "finished":
            break
    _keep_identity(plan.folder)
    return records


def _make_launch(plan: Plan, launch: int, environ: Mapping[str, str], watcher: Watcher) -> LaunchRecord:
    folder = plan.folder.launch(launch)
    try:
        folder.path.mkdir()
    except OSError as error:
        raise ReproError(
            f"cannot make {folder.path}: {error.strerror}", hint="name a folder that no other run writes to"
        ) from error
    config = plan.config
    return run_world(
        WorldPlan(
            folder=folder,
            argv=[sys.executable, "-u", "-m", "ddp_repro.run.rank", str(folder.path), str(plan.folder.config)],
            nproc=config.nproc,
            environ=environ,
            timeout_s=config.launcher.timeout_s,
            grace_s=config.launcher.grace_s,
            on_step=lambda step, total: watcher.step(launch, step, total),
        )
    )


def _environment(config: RecordConfig) -> dict[str, str]:
    fixed = determinism.environment(config.determinism, config.threads)
    if config.nproc * (config.threads or 1) > (os.cpu_count() or 1):
        # Threads that spin while they wait take the cores from those that work: measured 177 ms a step against 27 ms
        # (four ranks of two threads on two cores).
        fixed["OMP_WAIT_POLICY"] = "PASSIVE"
    return rank_environment(os.environ, {**fixed, **config.launcher.env})


def _run_document(plan: Plan, invocation: Invocation, environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "schema": SCHEMA_VERSION,
        "command": invocation.text,
        "level": plan.config.level,
        "launches": plan.launches,
        "world_size": plan.config.nproc,
        "rank_environment": dict(sorted(environ.items())),
    }


def _keep_identity(folder: RunFolder) -> None:
    """Copy rank 0's identity of the first launch to where the run's identity is looked for."""
    source = folder.launch(0).rank_identity(0)
    if source.is_file():
        write_json(folder.identity, read_json(source))
