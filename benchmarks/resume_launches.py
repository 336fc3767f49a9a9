"""Measures ``resume`` against the bare torchrun launches that it contains: whole, stopped half-way, gone on.

``python benchmarks/resume_launches.py [overrides]``: both are repeated, interleaved, and the ratio is that of the
medians. The bare launches save and load the same checkpoint.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from check_launches import BARE, RANKS, TORCHRUN, run, timed  # type: ignore[import-not-found]  # a script beside it

REPEATS = 5
STEPS = 60
STOP = 30


def main() -> None:
    overrides = [f"train.max_steps={STEPS}", *sys.argv[1:]]
    bare, resume = [], []
    for repeat in range(REPEATS):
        bare.append(timed(lambda: bare_launches(overrides)))
        resume.append(timed(lambda: one_resume(overrides)))
        print(f"repeat {repeat}: bare launches {bare[-1]:.2f} s, resume {resume[-1]:.2f} s", flush=True)
    one, other = statistics.median(bare), statistics.median(resume)
    print(f"medians: bare launches {one:.2f} s, resume {other:.2f} s, ratio {other / one:.3f}")


def bare_launches(overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stopped = [f"checkpoint.dir={Path(folder)}", f"checkpoint.stop={STOP}"]
        for more in ([], stopped, [f"checkpoint.load={folder}"]):
            run([*TORCHRUN, "--nproc-per-node", str(RANKS), str(BARE), *overrides, *more])


def one_resume(overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked = [f"nproc={RANKS}", f"resume.at=[{STOP}]", f"output.root={folder}"]
        run([*TORCHRUN, "-m", "ddp_repro.resume", *asked, *overrides])


if __name__ == "__main__":
    main()
