"""Measures a training step observed at ``capture=step`` against the same step not observed, in one world.

``python benchmarks/step_overhead.py`` starts two ranks for each model. Blocks of observed and of bare steps alternate
in the same process on the same model, so that both see the same machine; the ratio is that of the medians.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TEXT, DIGITS = "ddp_repro.workload.text.build", "ddp_repro.workload.digits.build"
BASE = {"size": "base", "batch_size": 4, "context": 64}  # about 10 million parameters
CASES = {
    "text base, 4 x 64 tokens": {"target": TEXT, **BASE, "blocks": 16, "steps": 4},
    "text tiny": {"target": TEXT, "size": "tiny", "blocks": 60, "steps": 10},
    "digits tiny": {"target": DIGITS, "size": "tiny", "blocks": 60, "steps": 10},
}
RANKS = 2


def main() -> None:
    print(f"{'model':28} {'bare ms':>9} {'observed ms':>12} {'ratio':>7}")
    for name, case in CASES.items():
        bare, observed = measure(case)
        print(f"{name:28} {bare * 1e3:9.2f} {observed * 1e3:12.2f} {observed / bare:7.3f}", flush=True)


def measure(case: dict[str, Any]) -> tuple[float, float]:
    """Return the median seconds of a bare and of an observed step on rank 0 of a fresh world."""
    from ddp_repro.run.environment import rank_environment
    from ddp_repro.run.ports import reserved_port

    fixed = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "WORLD_SIZE": str(RANKS)}
    with tempfile.TemporaryDirectory() as folder, reserved_port() as port:
        extra = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(RANKS), **fixed}
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "rank", json.dumps(case), folder],
                env={**rank_environment(os.environ, extra), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(RANKS)
        ]
        codes = [process.wait(timeout=900) for process in ranks]
        assert codes == [0] * RANKS, codes
        bare, observed = json.loads((Path(folder) / "times.json").read_text())
    return bare, observed


def run_rank(case: dict[str, Any], folder: Path) -> None:
    """Train in alternating blocks and write the two medians (rank 0)."""
    from itertools import cycle

    from ddp_repro.config import Backend, LauncherConfig, RecordConfig
    from ddp_repro.run.root_seed import seed_everything
    from ddp_repro.run.train import Session, prepare, take_step
    from ddp_repro.run.world import exit_now, join, leave, read_place
    from ddp_repro.workload.factory import load_workload

    blocks, steps = case.pop("blocks"), case.pop("steps")
    seed_everything(0)
    workload = load_workload(case.pop("target"), case)
    place = read_place(Backend.gloo)
    join(place, LauncherConfig())
    session: Session | None = prepare(RecordConfig(nproc=RANKS), place, workload)
    assert session is not None
    batches = cycle(session.loader)
    times: dict[bool, list[float]] = {False: [], True: []}
    for block in range(blocks):
        observed = block % 2 == 1
        with observing(folder, place.rank, block, observed=observed):
            for step in range(steps + 1):
                began = time.perf_counter()
                take_step(session, [next(batches)])
                if step and block > 1:  # the first of a block and the first two blocks warm up
                    times[observed].append(time.perf_counter() - began)
    if place.rank == 0:
        medians = [statistics.median(times[False]), statistics.median(times[True])]
        (folder / "times.json").write_text(json.dumps(medians))
    del session, workload
    leave()
    exit_now(0)


def observing(folder: Path, rank: int, block: int, *, observed: bool) -> Any:
    """Return the context of a block: watched with a trace of its own, or nothing."""
    from contextlib import nullcontext

    from ddp_repro.observe.recorder import Recorder
    from ddp_repro.observe.watch import watch
    from ddp_repro.trace.schema import TraceMeta
    from ddp_repro.trace.writer import TraceWriter

    if not observed:
        return nullcontext()
    meta = TraceMeta(identity="0" * 64, launch=block, rank=rank, world_size=RANKS, capture="step")
    writer = TraceWriter(folder / f"rank-{rank}-{block}.arrows", meta)
    return watch(Recorder(writer, on_step=lambda _step: None), capture="step")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        run_rank(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
