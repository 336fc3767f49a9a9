"""What benchmarks that write launches of their own share."""

from ddp_repro.trace.launch import LaunchRecord, RankExit, write_launch_record
from ddp_repro.trace.layout import LaunchFolder


def write_finished(folder: LaunchFolder, ranks: int, steps: int) -> None:
    """Write the record of a launch whose ranks all finished after ``steps`` steps."""
    record = LaunchRecord(
        launch=folder.index,
        world_size=ranks,
        outcome="finished",
        reason="",
        ranks=[RankExit(rank=rank, exit_code=0, last_step=steps - 1) for rank in range(ranks)],
        seconds=1.0,
    )
    write_launch_record(folder, record)
