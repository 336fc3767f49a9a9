"""Reads and compares two traces of 5 million observations each: observations a second, bytes an observation.

Run as ``python benchmarks/trace_compare.py``; prints one JSON object. Also timed: 25,000 steps of 200 observations,
and what one ``append`` and one ``flush`` of 150 observations cost the observed process.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ddp_repro.judge.divergence import compare_traces
from ddp_repro.trace.reader import Trace, read_trace
from ddp_repro.trace.schema import DIGEST_BYTES, TraceMeta
from ddp_repro.trace.writer import TraceWriter

PHASES_OF_A_STEP = ("grad_local", "grad_reduced", "grad_step", "param", "optimizer")


def main() -> None:
    """Run all parts and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=5_000_000, help="observations of each trace")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {
            f"rows_{rows}": compared(Path(folder), rows, options.observations, options.repeats) for rows in (1000, 200)
        }
        result["writer"] = written(Path(folder))
    print(json.dumps(result, indent=2))


def compared(folder: Path, rows: int, observations: int, repeats: int) -> dict[str, Any]:
    """Write the same trace twice, ``rows`` observations a step; time reading, checking and comparing both."""
    paths = [folder / f"{rows}-{copy}.arrows" for copy in (0, 1)]
    for copy, path in enumerate(paths):
        write(path, copy, rows, observations // rows)
    seconds, reading = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        first, second = map(read_trace, paths)
        reading.append(time.perf_counter() - start)
        assert_equal(first, second)
        seconds.append(time.perf_counter() - start)
        assert len(first) == len(second) == observations // rows * rows
        del first, second
    size = paths[0].stat().st_size
    for path in paths:
        path.unlink()
    return {
        "observations_per_second": round(2 * observations / statistics.median(seconds)),
        "seconds": round(statistics.median(seconds), 3),
        "seconds_reading": round(statistics.median(reading), 3),
        "bytes_per_observation": round(size / observations, 2),
    }


def assert_equal(first: Trace, second: Trace) -> None:
    """Stop the benchmark unless both are whole and equal."""
    assert first.whole, first.damage
    assert second.whole, second.damage
    assert compare_traces(first, second) is None


def write(path: Path, launch: int, rows: int, steps: int) -> None:
    """Write a trace that repeats the labels of one step, with digests that do not compress; all launches alike."""
    meta = TraceMeta(identity="0" * 32, launch=launch, rank=0, world_size=2, capture="step")
    labels = step_labels(rows)
    digests = np.random.default_rng(rows)
    writer = TraceWriter(path, meta)
    for step in range(steps):
        fresh = digests.bytes(rows * DIGEST_BYTES)
        for row, (phase, name, spec) in enumerate(labels):
            value = 0.1 * step + row if phase == "optimizer" else None
            writer.append(step, phase, name, spec, fresh[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES], value)
        writer.flush()
    writer.close("finished")


def step_labels(rows: int) -> list[tuple[str, str, str]]:
    """Return phase, name and spec of each observation of a step; one in twenty has a value."""
    labels = []
    for row in range(rows):
        phase = PHASES_OF_A_STEP[row * 20 // rows % 4] if row % 20 else "optimizer"
        spec = f"float32[{64 * (1 + row % 7)},64]"
        labels.append((phase, f"blocks.{row // 12}.layer{row % 12}.weight", spec))
    return labels


def written(folder: Path, steps: int = 2000, rows: int = 150) -> dict[str, float]:
    """Time ``append`` and ``flush`` as a training step of a small model would call them."""
    labels = step_labels(rows)
    path = folder / "writer.arrows"
    writer = TraceWriter(path, TraceMeta(identity="0" * 32, launch=0, rank=0, world_size=2, capture="step"))
    appends, flushes = [], []
    for step in range(steps):
        digests = [os.urandom(DIGEST_BYTES) for _ in labels]
        start = time.perf_counter()
        for (phase, name, spec), digest in zip(labels, digests, strict=True):
            writer.append(step, phase, name, spec, digest)
        middle = time.perf_counter()
        writer.flush()
        flushes.append(time.perf_counter() - middle)
        appends.append((middle - start) / rows)
    writer.close("finished")
    return {
        "append_us": round(statistics.median(appends) * 1e6, 3),
        f"flush_of_{rows}_us": round(statistics.median(flushes) * 1e6, 1),
        f"flush_of_{rows}_us_95": round(statistics.quantiles(flushes, n=20)[-1] * 1e6, 1),
        "bytes_per_observation": round(path.stat().st_size / steps / rows, 2),
    }


if __name__ == "__main__":
    main()
