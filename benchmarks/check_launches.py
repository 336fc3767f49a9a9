"""Measures ``check launches=2`` against two bare torchrun launches of the same training.

``python benchmarks/check_launches.py [overrides]``: both are repeated, interleaved, and the ratio is that of the
medians. The check runs under torchrun too, as a person would call it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 5
RANKS = 2
BARE = Path(__file__).with_name("bare_train.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def main() -> None:
    overrides = sys.argv[1:]
    bare, check = [], []
    for repeat in range(REPEATS):
        bare.append(timed(lambda: two_bare_launches(overrides)))
        check.append(timed(lambda: one_check(overrides)))
        print(f"repeat {repeat}: two bare launches {bare[-1]:.2f} s, check launches=2 {check[-1]:.2f} s", flush=True)
    one, other = statistics.median(bare), statistics.median(check)
    print(f"medians: two bare launches {one:.2f} s, check launches=2 {other:.2f} s, ratio {other / one:.3f}")


def timed(work: "object") -> float:
    """Return the seconds that ``work()`` takes."""
    assert callable(work)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def two_bare_launches(overrides: list[str]) -> None:
    for _ in range(2):
        run([*TORCHRUN, "--nproc-per-node", str(RANKS), str(BARE), *overrides])


def one_check(overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run([*TORCHRUN, "-m", "ddp_repro.check", f"nproc={RANKS}", f"output.root={folder}", *overrides])


def run(command: list[str]) -> None:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(BARE.parent.parent)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    main()
