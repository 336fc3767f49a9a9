"""One launch over all nodes: its world, and then everything that its ranks wrote, in one folder."""

from dataclasses import replace
from pathlib import Path

from ddp_repro.run.launcher import WorldPlan, run_world
from ddp_repro.run.nodes.distant import LaunchOrder
from ddp_repro.run.nodes.lead import Nodes
from ddp_repro.trace.launch import LaunchRecord
from ddp_repro.trace.layout import RunFolder


def run_on_nodes(world: WorldPlan, config: Path, nodes: Nodes) -> LaunchRecord:
    """Run a world as `run_world` does, with ranks on every node, and have all that they wrote in its folder.

    ``config`` is the file that its ranks read, in the folder of the run.
    """
    run = RunFolder(config.parent)
    order = LaunchOrder(
        run=str(run.path.resolve()),
        launch=world.folder.index,
        config=config.name,
        text=config.read_text(encoding="utf-8"),
    )
    share = nodes.share(run, order, world.nproc)
    record = run_world(replace(world, environ={**world.environ, **nodes.own_environment}, elsewhere=share))
    return nodes.collected(record, run)
