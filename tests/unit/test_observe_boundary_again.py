"""What a step starts from is what it really computes with, whatever a script computed and discarded before."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.config import BoundaryCapture, CaptureConfig
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.run.boundaries import boundaries
from ddp_repro.trace.schema import BOUNDARY_STATE
from tests.unit.test_observe_training import Rows


@contextlib.contextmanager
def observing(boundary: BoundaryCapture) -> Iterator[Rows]:
    gc.collect()
    rows = Rows()
    wanted = boundaries(CaptureConfig(boundary=boundary))
    with watch(Recorder(rows), boundaries=wanted):  # type: ignore[arg-type]
        yield rows


@pytest.fixture(scope="module", autouse=True)
def lone_world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    gc.collect()
    dist.destroy_process_group()


def model_and_optimizer() -> tuple[Any, torch.optim.Optimizer]:
    model = DistributedDataParallel(nn.Linear(3, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def trained(model: Any, optimizer: torch.optim.Optimizer, micro_batches: int = 1) -> None:
    for _ in range(micro_batches):
        model(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def told(rows: Rows, name: str, step: int | None = None) -> list[bytes]:
    return [row[4] for row in rows.of("boundary", step) if row[2] == name]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_the_boundary_is_told_again_after_a_discarded_iteration(set_to_none: bool) -> None:
    with observing(BoundaryCapture.first) as rows:
        model, optimizer = model_and_optimizer()
        model(torch.rand(4, 3)).sum().backward()
        optimizer.zero_grad(set_to_none=set_to_none)
        model.module.load_state_dict({"weight": torch.full((2, 3), 0.5), "bias": torch.zeros(2)})
        loaded = tensor_digest(model.module.weight)
        trained(model, optimizer)
        trained(model, optimizer)
    assert len(told(rows, "param.weight")) == 2
    assert told(rows, "param.weight")[-1] == loaded


def test_gradients_that_the_loop_clears_after_its_forward_are_discarded_too() -> None:
    with observing(BoundaryCapture.first) as rows:
        model, optimizer = model_and_optimizer()
        model(torch.rand(4, 3)).sum().backward()
        model.module.load_state_dict({"weight": torch.full((2, 3), 0.5), "bias": torch.zeros(2)})
        loaded = tensor_digest(model.module.weight)
        state = torch.get_rng_state()
        loss = model(torch.rand(4, 3)).sum()
        torch.rand(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.set_rng_state(state)
    assert told(rows, "param.weight")[-1] == loaded
    entered = [row for row in rows.of("rng") if row[3] == BOUNDARY_STATE and row[2] == "torch"]
    assert len(entered) == 2  # one a forward, none at the backward: the state there is another one


def test_micro_batches_that_gather_gradients_are_one_step_with_one_boundary() -> None:
    with observing(BoundaryCapture.every) as rows:
        model, optimizer = model_and_optimizer()
        trained(model, optimizer, micro_batches=3)
        trained(model, optimizer, micro_batches=3)
    assert [len(told(rows, "param.weight", step)) for step in (0, 1)] == [1, 1]
    states = [row for row in rows.of("rng") if row[3] == BOUNDARY_STATE and row[2] == "torch"]
    assert len(states) == 6


def test_each_optimizer_begins_with_a_boundary_of_its_own() -> None:
    with observing(BoundaryCapture.every) as rows:
        (first, of_first), (second, of_second) = model_and_optimizer(), model_and_optimizer()
        for _ in range(2):
            trained(first, of_first)
            trained(second, of_second)
    assert [len(told(rows, "param.weight", step)) for step in (0, 1, 2)] == [1, 2, 1]
    assert len(told(rows, "param.model1.weight", 1)) == 2


def test_nothing_is_told_where_no_boundary_is_wanted() -> None:
    with observing(BoundaryCapture.none) as rows:
        trained(*model_and_optimizer())
    assert rows.of("boundary") == []
    assert [row for row in rows.of("rng") if row[3] == BOUNDARY_STATE] == []
