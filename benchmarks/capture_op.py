"""A step of the tiny text model with capture=op, against PyTorch's own DebugMode with hashes, and against none.

    python benchmarks/capture_op.py [rounds]

One process, no ranks; the three take turns, and medians are told with their ratios to the step without.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode

from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from ddp_repro.workload import text

STEPS = 5
META = TraceMeta(identity="", launch=0, rank=0, world_size=1, capture="op")


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    step = make_step()
    with TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[int], Any]] = {
            "none": lambda _: nullcontext(),
            "capture=op": lambda number: observed(Path(folder) / f"{number}.arrows"),
            "DebugMode with hashes": lambda _: debugged(),
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(rounds):
            for kind, around in kinds.items():
                with around(number):
                    step()  # what is found out once: names of modules, plans of operators
                    for _ in range(STEPS):
                        began = time.perf_counter()
                        step()
                        times[kind].append(time.perf_counter() - began)
    base = statistics.median(times["none"])
    for kind, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{kind}: {median * 1e3:.1f} ms a step, {median / base:.2f} times the step without")


def make_step() -> Callable[[], None]:
    torch.manual_seed(0)
    workload = text.build("tiny")
    optimizer = workload.optimizer(workload.model)
    batch = (torch.randint(256, (2, 128)), torch.randint(256, (2, 128)))

    def step() -> None:
        workload.loss(workload.model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


@contextmanager
def observed(path: Path) -> Iterator[None]:
    writer = TraceWriter(path, META)
    with watch(Recorder(writer), "op"):
        yield
    writer.close("finished")


@contextmanager
def debugged() -> Iterator[None]:
    with DebugMode() as mode, DebugMode.log_tensor_hashes(hash_inputs=True):
        yield
    mode.debug_string()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
