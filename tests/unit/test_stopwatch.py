"""The ends of steps are noted for the optimizer that steps first, and cost next to nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ddp_repro.errors import ReproError
from ddp_repro.run.stopwatch import Stopwatch
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.trace.timing import read_timing


@pytest.fixture
def watch() -> Iterator[Stopwatch]:
    made = Stopwatch()
    handle = made.attach()
    yield made
    handle.remove()


def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    return torch.optim.SGD([parameter], lr=0.1)


def test_each_step_of_the_first_optimizer_is_timed(watch: Stopwatch, tmp_path: Path) -> None:
    first, second = optimizer(), optimizer()
    for _ in range(4):
        first.step()
        second.step()
        time.sleep(0.01)
    folder = LaunchFolder(tmp_path)
    watch.write(folder.timing(1))
    timing = read_timing(folder, 1)
    assert len(timing.seconds) == 3
    assert min(timing.seconds) > 0.009
    assert timing.rss_bytes is not None
    assert timing.rss_bytes > 20 << 20
    assert timing.gpu_bytes is None


def test_the_hook_takes_some_microseconds(watch: Stopwatch) -> None:
    one = optimizer()
    began = time.thread_time()
    for _ in range(2_000):
        watch._after(one, (), {})
    assert (time.thread_time() - began) / 2_000 < 20e-6  # measured: one; a step of a tiny model takes thousands


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 9}', '{"schema": 1, "intervals_ns": ["x"]}'])
def test_what_is_damaged_is_refused(tmp_path: Path, content: str) -> None:
    folder = LaunchFolder(tmp_path)
    with pytest.raises(ReproError, match="missing"):
        read_timing(folder, 0)
    folder.timing(0).write_text(content)
    with pytest.raises(ReproError):
        read_timing(folder, 0)
