"""Makes the launches of a run: the run folder, each world in turn, and a record of what was set."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddp_repro.config import RecordConfig, is_script, save_config
from ddp_repro.errors import ReproError
from ddp_repro.run.driver import Invocation
from ddp_repro.run.environment import moves_bits
from ddp_repro.run.estimate import Sizes, size_note
from ddp_repro.run.following import Following
from ddp_repro.run.launch_environment import launch_environment
from ddp_repro.run.launcher import WorldPlan, run_world
from ddp_repro.run.rank_command import rank_argv
from ddp_repro.run.variants import Variant
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.launch import PARTED, LaunchRecord
from ddp_repro.trace.layout import RunFolder

if TYPE_CHECKING:
    from ddp_repro.run.nodes.lead import Nodes

SCHEMA_VERSION = 1


class Watcher(Protocol):
    """Is told how far the launches are."""

    def launch_started(self, launch: int, of: int) -> None:
        """Launch number ``launch`` (from 0) of ``of`` was started."""

    def step(self, launch: int, step: int, total: int | None) -> None:
        """Rank 0 completed its ``step``-th optimizer step."""

    def launch_finished(self, launch: int, outcome: str) -> None:
        """Launch number ``launch`` ended."""

    def note(self, text: str) -> None:
        """There is something that who waits for the launches should know now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run to be made: its folder, the configuration that its command has, and what is launched, in order.

    ``follow`` returns what goes along with the launch of that number, if anything is to.
    """

    folder: RunFolder
    config: RecordConfig
    variants: Sequence[Variant]
    follow: Callable[[int], Following | None] | None = None

    @property
    def launches(self) -> int:
        """Return the number of all launches."""
        return sum(len(variant.launches) for variant in self.variants)


def make_launches(plan: Plan, invocation: Invocation, watcher: Watcher, *, made: int = 0) -> list[LaunchRecord]:
    """Make the launches one after the other, each in a fresh process tree; the first that fails is the last.

    Those of the first ``made`` variants are there already.

    Raises ReproError for a configuration that cannot run and `Interrupted` when the driver is told to stop; what was
    recorded before stays in the folder.
    """
    _write_plan(plan, invocation)
    records: list[LaunchRecord] = []
    for number, variant in list(enumerate(plan.variants))[made:]:
        for launch in variant.launches:
            watcher.launch_started(launch, plan.launches)
            record = _make_launch(plan, (number, launch), watcher, invocation.nodes)
            watcher.launch_finished(launch, record.outcome)
            records.append(record)
            if record.outcome not in ("finished", "killed", PARTED):
                _keep_identity(plan.folder)
                return records
    _keep_identity(plan.folder)
    return records


def _write_plan(plan: Plan, invocation: Invocation) -> None:
    """Write the configurations that ranks read, and what is to be launched."""
    save_config(plan.config, plan.folder.config)
    for number, variant in enumerate(plan.variants):
        if variant.config is not plan.config:
            save_config(variant.config, plan.folder.variant_config(number))
    write_json(plan.folder.run, _run_document(plan, invocation))


def _make_launch(plan: Plan, number: tuple[int, int], watcher: Watcher, nodes: "Nodes | None") -> LaunchRecord:
    variant, launch = number
    folder, config = plan.folder.launch(launch), plan.variants[variant].config
    config_file = plan.folder.config if config is plan.config else plan.folder.variant_config(variant)
    try:
        folder.path.mkdir()
    except OSError as error:
        raise ReproError(
            f"cannot make {folder.path}: {error.strerror}", hint="name a folder that no other run writes to"
        ) from error
    everywhere = config if nodes is None else replace(config, nproc=config.nproc * nodes.count)
    world = WorldPlan(
        folder=folder,
        argv=rank_argv(folder, config_file),
        nproc=config.nproc,
        kill_at=plan.variants[variant].kill_at,
        environ=launch_environment(config, os.environ),
        timeout_s=config.launcher.timeout_s,
        grace_s=config.launcher.grace_s,
        on_step=lambda step, total: watcher.step(launch, step, total),
        on_size=lambda size, planned: _tell_size(plan, everywhere, (size, planned), watcher) if launch == 0 else None,
        following=None if plan.follow is None else plan.follow(launch),
    )
    return run_world(world) if nodes is None else _run_on_nodes(world, config_file, nodes, watcher)


def _run_on_nodes(world: WorldPlan, config: Path, nodes: "Nodes", watcher: Watcher) -> LaunchRecord:
    from ddp_repro.run.nodes.world import run_on_nodes  # noqa: PLC0415  only where there are several nodes

    if world.following is not None and (unseeing := nodes.unseeing(RunFolder(config.parent))):
        where = f"launch {world.folder.index} is not ended early"
        watcher.note(f"{where}: {', '.join(unseeing)} does not write to this folder")
        world = replace(world, following=None)
    return run_on_nodes(world, config, nodes)


def _tell_size(plan: Plan, config: RecordConfig, seen: tuple[int, int | None], watcher: Watcher) -> None:
    size, planned = seen
    sizes = Sizes(step=size, steps=planned, launches=plan.launches, free=shutil.disk_usage(plan.folder.path).free)
    told = size_note(config, sizes)
    if told:
        watcher.note(told)


def _run_document(plan: Plan, invocation: Invocation) -> dict[str, Any]:
    nodes = invocation.nodes
    return {
        "schema": SCHEMA_VERSION,
        "command": invocation.text,
        "level": plan.config.level,
        "launches": plan.launches,
        "world_size": plan.config.nproc * (1 if nodes is None else nodes.count),
        **({} if nodes is None else {"nodes": nodes.told()}),
        "rank_environment": _told_environment(plan.config),
        "variants": [_variant_document(plan, variant) for variant in plan.variants],
    }


def _told_environment(config: RecordConfig) -> dict[str, str]:
    """Return the environment of a launch's ranks; of an inherited one, which may hold secrets, what matters."""
    environ = launch_environment(config, os.environ)
    if is_script(config):
        environ = {name: value for name, value in environ.items() if moves_bits(name) or os.environ.get(name) != value}
    return dict(sorted(environ.items()))


def _variant_document(plan: Plan, variant: Variant) -> dict[str, Any]:
    base, own = _told_environment(plan.config), _told_environment(variant.config)
    return {
        "overrides": list(variant.overrides),
        "launches": list(variant.launches),
        "allow": list(variant.allow),
        "environment": {name: own.get(name) for name in {**base, **own} if base.get(name) != own.get(name)},
    }


def _keep_identity(folder: RunFolder) -> None:
    """Copy rank 0's identity of the first launch to where the run's identity is looked for."""
    source = folder.launch(0).rank_identity(0)
    if source.is_file():
        write_json(folder.identity, read_json(source))
