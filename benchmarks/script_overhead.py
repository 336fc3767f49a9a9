"""Measures the steps of a script under observation against those of the same script under torchrun.

``python benchmarks/script_overhead.py [tiny|base …]``: torchrun, ``record`` with ``capture=off`` and with
``capture=step`` take turns, each in a fresh world of two ranks, and the ratios are those of the medians of all runs.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, REPEATS = 2, 5
STEPS = {"tiny": 150, "base": 12}
SCRIPT = Path(__file__).with_name("plain_train.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
RECORD = [sys.executable, "-m", "ddp_repro.record", "workload=script", f"workload.path={SCRIPT}", f"nproc={RANKS}"]


def main() -> None:
    print(f"{'script':8} {'torchrun ms':>12} {'off ms':>9} {'step ms':>9} {'off':>7} {'step':>7}")
    for size in sys.argv[1:] or list(STEPS):
        kinds = ("torchrun", "off", "step")
        runs: dict[str, list[float]] = {kind: [] for kind in kinds}
        for repeat in range(REPEATS):
            for kind in kinds[repeat % 3 :] + kinds[: repeat % 3]:
                runs[kind].append(measure(kind, size))
        bare, off, observed = (statistics.median(runs[kind]) * 1e3 for kind in kinds)
        print(f"{size:8} {bare:12.2f} {off:9.2f} {observed:9.2f} {off / bare:7.3f} {observed / bare:7.3f}", flush=True)


def measure(kind: str, size: str) -> float:
    """Return the median seconds of a step on rank 0 of a fresh world."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        arguments = ["--size", size, "--steps", str(STEPS[size]), "--times", str(times)]
        if kind == "torchrun":
            run([*TORCHRUN, str(SCRIPT), *arguments])
        else:
            args = f'workload.args="{" ".join(arguments)}"'
            run([*RECORD, args, f"capture={kind}", f"output.dir={folder}/run"])
        seconds: list[float] = json.loads(times.read_text())
        return statistics.median(seconds)


def run(command: list[str]) -> None:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent.parent)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    main()
