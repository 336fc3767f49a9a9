"""Makes ``report.html`` of a run of 64 ranks and 10,000 steps: seconds and megabytes; and of a tiny run.

Run as ``python benchmarks/html_report.py``; prints one JSON object. ``read`` counts reading the traces from disk, as
``python -m ddp_repro.report`` does; ``loaded`` is what a command adds that has judged them already.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from recorded import write_finished  # type: ignore[import-not-found]  # a script beside it

from ddp_repro.errors import Verdict
from ddp_repro.judge.findings import Finding, Judgement
from ddp_repro.report.html.page import write_page
from ddp_repro.report.html.source import Loaded
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import load_launch
from ddp_repro.trace.layout import LaunchFolder, RunFolder
from ddp_repro.trace.schema import DIGEST_BYTES, TraceMeta
from ddp_repro.trace.writer import TraceWriter

PHASES = (
    ("data", "DistributedSampler[0].batch[0]", "int64[32]"),
    ("rng", "torch", "state"),
    ("loss", "loss", "float32[]"),
    *(
        (phase, f"blocks.{layer}.weight", "float32[64,64]" + suffix)
        for phase, suffix in (
            ("grad_local", ""),
            ("grad_reduced", " replicated"),
            ("grad_step", ""),
            ("param", " replicated"),
            ("optimizer", ""),
        )
        for layer in range(2)
    ),
)


def main() -> None:
    """Run both parts and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--launches", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep the run here")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    result = {
        "large": measured(folder / "large", options.ranks, options.steps, options.launches),
        "tiny": measured(folder / "tiny", 4, 20, 2),
    }
    if options.folder is None:
        shutil.rmtree(folder)
    print(json.dumps(result, indent=2))


def measured(path: Path, ranks: int, steps: int, launches: int) -> dict[str, Any]:
    """Write a run that differs from its middle on, and time its page."""
    run = RunFolder(path)
    path.mkdir(parents=True)
    for launch in range(launches):
        write_launch(run.launch(launch), ranks, steps, differs=steps // 2 if launch == 1 else None)
    observations = ranks * steps * launches * len(PHASES)
    tell(run, launches, steps // 2, observations)
    read, _ = timed(run, None)
    loaded = Loaded.of(load_launch(run.launch(launch)) for launch in range(launches))
    seconds, processor = timed(run, loaded)
    return {
        "ranks": ranks,
        "steps": steps,
        "observations": observations,
        "seconds_read": read,
        "seconds_loaded": seconds,
        "processor_seconds_loaded": processor,
        "megabytes": round(run.report.stat().st_size / 1e6, 3),
    }


def timed(run: RunFolder, source: Loaded | None) -> tuple[float, float]:
    """Return what making the page takes: seconds, and seconds of this process's processors."""
    start, processor = time.perf_counter(), time.process_time()
    write_page(run, source)
    return round(time.perf_counter() - start, 2), round(time.process_time() - processor, 2)


def tell(run: RunFolder, launches: int, step: int, observations: int) -> None:
    """Write the verdict that belongs to the launches."""
    found = Finding(
        witness="launches",
        severity="error",
        cause="backward-operator",
        title="nondeterministic operator in backward",
        launches=(0, 1),
        step=step,
        ranks=(0,),
        phase="grad_local",
        name="blocks.0.weight",
        message="the gradient differs before any reduction",
        advice="set determinism=debug",
    )
    judgement = Judgement(
        verdict=Verdict.DIVERGED,
        classes=[[0, *range(2, launches)], [1]],
        findings=[found],
        problems=[],
        notes=[],
        observations=observations,
        folders={launch: str(run.launch(launch).path) for launch in range(launches)},
    )
    write_json(run.verdict, verdict_document(judgement, Context(run=run, command="python benchmarks/html_report.py")))


def write_launch(folder: LaunchFolder, ranks: int, steps: int, differs: int | None) -> None:
    """Write a launch; from step ``differs`` on rank 0's gradient is another one, and with it all that follows."""
    folder.path.mkdir()
    for rank in range(ranks):
        write(folder.trace(rank), (folder.index, rank, ranks), steps, differs)
    write_finished(folder, ranks, steps)


def write(path: Path, whose: tuple[int, int, int], steps: int, differs: int | None) -> None:
    launch, rank, ranks = whose
    meta = TraceMeta(identity="0" * 32, launch=launch, rank=rank, world_size=ranks, capture="step")
    writer = TraceWriter(path, meta)
    draws = np.random.default_rng(rank)
    others = np.random.default_rng((rank, 1))
    loss = 4 * np.exp(-np.arange(steps) / steps * 3) + 0.05 * draws.standard_normal(steps)
    for step in range(steps):
        fresh = draws.bytes(len(PHASES) * DIGEST_BYTES)
        other = others.bytes(len(PHASES) * DIGEST_BYTES)
        rows = []
        for row, (phase, name, spec) in enumerate(PHASES):
            has_moved = differs is not None and reached(step - differs, rank, row)
            at = slice(row * DIGEST_BYTES, (row + 1) * DIGEST_BYTES)
            value = float(np.float32(loss[step] + (1e-6 * has_moved))) if phase == "loss" else None
            rows.append((step, phase, name, spec, (other if has_moved else fresh)[at], value))
        writer.extend(rows)
        writer.flush()
    writer.close("finished")


def reached(since: int, rank: int, row: int) -> bool:
    """Tell whether a row differs ``since`` steps after the first difference, in rank 0's local gradient."""
    if since <= 0:
        return since == 0 and (row > 4 or (rank == 0 and row > 2))
    return row > 1


if __name__ == "__main__":
    main()
