"""Measures what the hook costs by which `cost` times steps: the same optimizer's steps with and without it, in turns.

``python benchmarks/timing_hook.py``: one process, a tiny optimizer, blocks in turns; printed is the difference of the
medians, in microseconds of processor time a step.
"""

import statistics
import time

import torch
from torch import nn

from ddp_repro.run import stopwatch

STEPS, BLOCKS = 2_000, 20


def main() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model(torch.ones(2, 4)).sum().backward()
    times: dict[bool, list[float]] = {False: [], True: []}
    for block in range(BLOCKS):
        timed = block % 2 == 1
        watch = stopwatch.Stopwatch()
        handle = watch.attach() if timed else None
        for _ in range(STEPS // 10):
            optimizer.step()
        began = time.thread_time()
        for _ in range(STEPS):
            optimizer.step()
        times[timed].append((time.thread_time() - began) / STEPS)
        if handle is not None:
            handle.remove()
    bare, hooked = (statistics.median(times[timed]) * 1e6 for timed in (False, True))
    print(f"a step {bare:.2f} us, with the hook {hooked:.2f} us: {hooked - bare:.2f} us for the hook")


if __name__ == "__main__":
    main()
