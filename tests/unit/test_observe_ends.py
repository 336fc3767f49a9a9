"""What models ended with: read as they are let go, and at the end where they are still there."""

import gc
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it without saying so
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.ends import Ends


@pytest.fixture
def ends() -> Iterator[Ends]:
    followed = Ends()
    detach = followed.attach()
    yield followed
    detach()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def digests(model: nn.Module, prefix: str = "") -> dict[str, str]:
    return {prefix + name: tensor_digest(tensor).hex() for name, tensor in model.named_parameters()}


def test_a_model_that_is_there_is_read_as_it_is_now(ends: Ends) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    step(model, sgd(model))
    with torch.no_grad():
        next(model.parameters()).fill_(3)  # after its optimizer is gone
        next(model.buffers()).fill_(2)
    read = ends.read()
    assert read["param"] == digests(model)
    assert read["buffer"] == {f"1.{name}": tensor_digest(tensor).hex() for name, tensor in model[1].named_buffers()}


def test_a_model_that_is_gone_was_read_before_and_is_held_no_longer(ends: Ends) -> None:
    expected: dict[str, str] = {}
    for prefix in ("", "model1."):
        model = nn.Linear(3, 2)
        optimizer = sgd(model)
        step(model, optimizer)
        expected |= digests(model, prefix)
        del model, optimizer
    gc.collect()
    assert not [tensor for tensor in gc.get_objects() if type(tensor) is nn.Parameter and tensor.shape == (2, 3)]
    assert ends.read()["param"] == expected


def test_frozen_shared_replaced_and_nameless_parameters_are_told(ends: Ends) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    model[2].bias.requires_grad_(False)
    loose = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([*model.parameters(), loose], lr=0.1)
    step(model, optimizer)
    model[2] = nn.Linear(3, 2)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    step(model, optimizer)
    read = ends.read()["param"]
    told = digests(model)
    assert {name: read[name] for name in told} == told
    assert set(read) == {*told, "optimizer0.param5"}
    assert read["optimizer0.param5"] == tensor_digest(loose).hex()


def test_buffers_are_read_as_the_last_optimizer_of_a_model_left_them(ends: Ends) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    first, second = sgd(model[0]), sgd(model[1])
    step(model, first)
    step(model, second)
    del first
    gc.collect()
    step(model, second)
    expected = {f"1.{name}": tensor_digest(tensor).hex() for name, tensor in model[1].named_buffers()}
    del model
    gc.collect()
    assert ends.read()["buffer"] == expected


def test_models_of_one_size_are_named_in_the_order_of_the_parameters(ends: Ends) -> None:
    second, first = nn.Linear(3, 2), nn.Linear(3, 2)
    gc.collect()  # which orders what it finds by age
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    (first(torch.ones(1, 3)) + second(torch.ones(1, 3))).sum().backward()
    optimizer.step()
    assert ends.read()["param"] == digests(first) | digests(second, "model1.")


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_replica_that_an_optimizer_of_ones_own_steps_is_told_besides(ends: Ends, is_gone: bool) -> None:
    first = nn.Linear(3, 2)
    own = nn.Sequential(first, nn.BatchNorm1d(2))
    scale = nn.Linear(2, 2)
    own_replica, replica = DistributedDataParallel(own), DistributedDataParallel(scale)
    optimizer = sgd(scale)
    replica(own_replica(torch.ones(4, 3))).sum().backward()
    optimizer.step()
    with torch.no_grad():
        first.weight.fill_(3)
    expected = digests(own, "replica0."), digests(scale)
    if is_gone:
        del first, own, own_replica, replica
        gc.collect()
    read = ends.read()
    assert read["param"] == expected[0] | expected[1]
    assert set(read["buffer"]) == {
        f"replica0.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }


@pytest.mark.usefixtures("one_rank")
def test_a_copy_of_a_replica_that_gets_no_gradient_is_not_told(ends: Ends) -> None:
    model = nn.Linear(3, 2)
    replica = DistributedDataParallel(model)
    average = AveragedModel(replica)
    step(replica, sgd(model))
    average.update_parameters(replica)
    assert ends.read()["param"] == digests(model)
