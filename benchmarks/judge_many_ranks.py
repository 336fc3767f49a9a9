"""Judges two launches of 64 ranks, 2,000 steps and 200 observations a step, as `compare` does: seconds and memory.

Run as ``python benchmarks/judge_many_ranks.py``; prints one JSON object. The traces are written to disk first (a few
minutes, 1.5 GB); then a fresh process reads, checks and judges them, and tells its wall time and the largest memory
that it held. ``equal`` launches are equal in bits, ``parted`` ones differ from the middle on. ``raw_read_s`` is what
reading the same files as plain bytes takes, for the ratio.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from recorded import write_finished  # type: ignore[import-not-found]  # a script beside it

from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.trace.document import write_json
from ddp_repro.trace.identity import identity_digest
from ddp_repro.trace.layout import LaunchFolder, RunFolder
from ddp_repro.trace.schema import DIGEST_BYTES, TraceMeta
from ddp_repro.trace.writer import TraceWriter
from ddp_repro.verdict import load_launches

BATCH = 8
FIXED = BATCH + 6
PHASES = ("grad_local", "grad_reduced", "grad_step", "param", "optimizer")
REPLICATED = ("grad_reduced", "param")


def main() -> None:
    """Write the launches, judge them in processes of their own, and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the launches here; those that are there are used again")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        print(json.dumps(judged(options.judge)))
        return
    folder = options.folder or Path(tempfile.mkdtemp())
    size = options.ranks, options.steps, options.rows
    told: dict[str, Any] = {"ranks": size[0], "steps": size[1], "rows": size[2]}
    write(folder / "equal", size, None)
    (folder / "parted").mkdir(exist_ok=True)
    first = folder / "parted" / "launch-0"
    if not first.exists():
        first.symlink_to(folder.resolve() / "equal" / "launch-0")
    write(folder / "parted", size, size[1] // 2)
    for name in ("equal", "parted"):
        told[name] = measured(RunFolder(folder / name), options.repeats, is_parted=name == "parted")
    if options.folder is None:
        shutil.rmtree(folder)
    print(json.dumps(told, indent=2))


def write(path: Path, size: tuple[int, int, int], parts_at: int | None) -> None:
    """Write two launches, those that are not there yet; the second parts from the first at a step, or never."""
    for launch in range(2):
        folder = RunFolder(path).launch(launch)
        if not folder.record.exists():
            write_launch(folder, size, parts_at if launch else None)


def measured(run: RunFolder, repeats: int, *, is_parted: bool) -> dict[str, Any]:
    """Return the medians of judging two launches."""
    results, raw = [], []
    for _ in range(repeats):
        raw.append(read_raw(run))
        command = [sys.executable, __file__, "--judge", str(run.path)]
        results.append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    middle = sorted(results, key=lambda one: one["seconds"])[len(results) // 2]
    assert middle["verdict"] == ("DIVERGED" if is_parted else "REPRODUCIBLE"), middle
    return {
        **middle,
        "raw_read_s": round(sorted(raw)[len(raw) // 2], 2),
        "peak_mib": max(one["peak_mib"] for one in results),
    }


def read_raw(run: RunFolder) -> float:
    """Return the seconds that reading all traces as bytes takes."""
    start = time.perf_counter()
    for launch in run.launches():
        for rank in launch.ranks():
            launch.trace(rank).read_bytes()
    return time.perf_counter() - start


def judged(path: Path) -> dict[str, Any]:
    """Read and judge the launches below ``path``; times in seconds, memory of this process in MiB."""
    start, processor = time.perf_counter(), time.process_time()
    launches = load_launches(RunFolder(path).launches())
    loaded = time.perf_counter() - start
    judgement = judge(launches, Rules())
    return {
        "verdict": judgement.verdict.value,
        "problems": judgement.problems,
        "first": [(one.step, one.phase, one.name, list(one.ranks)) for one in judgement.findings[:1]],
        "observations": judgement.observations,
        "seconds": round(time.perf_counter() - start, 2),
        "of_it_reading": round(loaded, 2),
        "processor_s": round(time.process_time() - processor, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def write_launch(folder: LaunchFolder, size: tuple[int, int, int], parts_at: int | None) -> None:
    """Write a launch; from step ``parts_at`` on rank 1's local gradient is another one, and with it what follows."""
    ranks, steps, rows = size
    folder.path.mkdir(parents=True)
    identity: dict[str, Any] = {
        "schema": 1,
        "experiment": {"seed": 0, "world_size": ranks},
        "software": {},
        "hardware": {},
        "environment": {},
    }
    identity["digest"] = identity_digest(identity)
    for rank in range(ranks):
        write_json(folder.rank_identity(rank), identity)
        meta = TraceMeta(
            identity=identity["digest"], launch=folder.index, rank=rank, world_size=ranks, capture="step", launch_id=""
        )
        write_trace(folder.trace(rank), meta, (steps, rows), parts_at)
    write_finished(folder, ranks, steps)


def write_trace(path: Path, meta: TraceMeta, size: tuple[int, int], parts_at: int | None) -> None:
    """Write one pass over a sampler's shard, one batch a step, with digests that do not compress."""
    steps, rows = size
    labels = step_labels(rows)
    own, common = np.random.default_rng(meta.rank + 1), np.random.default_rng(0)
    is_common = [" replicated" in spec or phase == "grad_step" for phase, _, spec in labels]
    writer = TraceWriter(path, meta)
    facts = {"pass": 0, "length": steps * BATCH * meta.world_size, "shuffle": 1, "num_replicas": meta.world_size}
    for name, fact in {**facts, "sampler_rank": meta.rank, "epoch": 0, "num_workers": 0, "drop_last": 0}.items():
        writer.append(0, "data", f"DistributedSampler[0].{name}", "int64[]", fact.to_bytes(DIGEST_BYTES, "big"), fact)
    for step in range(steps):
        mine, all_have = own.bytes(rows * DIGEST_BYTES), common.bytes(rows * DIGEST_BYTES)
        has_parted = parts_at is not None and step >= parts_at
        written = []
        for row, (phase, name, spec) in enumerate(labels):
            source = all_have if is_common[row] else mine
            digest = source[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]
            if has_parted and row >= FIXED and (step != parts_at or meta.rank == 1 or phase != "grad_local"):
                digest = digest[::-1]
            value = None
            if phase == "loss":
                value = 1.0 / (step + 1)
            elif name.endswith(".index"):
                value = float((step * BATCH + row) * meta.world_size + meta.rank)
                digest = int(value).to_bytes(DIGEST_BYTES, "big")
            written.append((step, phase, name, spec, digest, value))
        writer.extend(written)
        writer.flush()
    writer.append(steps, "data", "DistributedSampler[0].end", "int64[]", steps.to_bytes(DIGEST_BYTES, "big"), steps)
    writer.close("finished")


def step_labels(rows: int) -> list[tuple[str, str, str]]:
    """Return phase, name and spec of each observation of a step: a batch, generators, a loss, and five phases."""
    labels = [("data", "DistributedSampler[0].index", "int64[]")] * BATCH
    labels += [("data", f"DistributedSampler[0].batch[{part}]", "float32[8,16]") for part in range(2)]
    labels += [("rng", name, "state") for name in ("python", "numpy", "torch")]
    labels.append(("loss", "loss", "float32[]"))
    parameters = -(-(rows - len(labels)) // len(PHASES))
    of_phases = [
        (phase, f"blocks.{at // 12}.layer{at % 12}.weight", "float32[64,64]" + " replicated" * (phase in REPLICATED))
        for phase in PHASES
        for at in range(parameters)
    ]
    return labels + of_phases[: rows - len(labels)]


if __name__ == "__main__":
    main()
