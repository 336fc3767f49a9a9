"""What a step starts from is told before it: by name, once, where that is wanted."""

import copy
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.modules import module as nn_module
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau, StepLR
from torch.optim.swa_utils import AveragedModel

from ddp_repro.config import BoundaryCapture, CaptureConfig
from ddp_repro.observe.boundary import Wanted
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.run.boundaries import boundaries

EVERY = boundaries(CaptureConfig(boundary=BoundaryCapture.every))


class Rows:
    """Stands in for the writer."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def extend(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows.extend(rows)

    def flush(self) -> None: ...

    def boundary(self, step: int) -> dict[str, bytes]:
        return {row[2]: row[4] for row in self.rows if row[0] == step and row[1] == "boundary"}


class Small(nn.Linear):
    """Told from the models of other tests."""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def train(wanted: Wanted, steps: int = 4, *, copied: bool = True) -> Rows:
    rows = Rows()
    torch.manual_seed(0)
    with watch(Recorder(rows), boundaries=wanted):  # type: ignore[arg-type]
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        average = AveragedModel(model) if copied else None
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scheduler, scaler = StepLR(optimizer, 2), GradScaler("cpu")
        for _ in range(steps):
            scaler.scale(model(torch.randn(4, 3)).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            if average is not None:
                average.update_parameters(model)
    return rows


def test_everything_is_told_by_name() -> None:
    rows = train(EVERY)
    told = rows.boundary(2)
    assert list(told)[:4] == [
        "scheduler.StepLR[0].step_size",
        "scheduler.StepLR[0].gamma",
        "scheduler.StepLR[0].last_epoch",
        "scaler.scale",
    ]
    names = {"scaler.scale", "optimizer.group0.lr", "optimizer.0.weight.exp_avg", "copy.AveragedModel[0].n_averaged"}
    assert names | {"copy.AveragedModel[0].module.0.weight", "param.0.weight", "param.1.bias"} <= set(told)
    assert "scheduler.StepLR[0].verbose" not in told
    generators = [row for row in rows.rows if row[0] == 2 and row[1] == "rng"]
    assert {"python", "torch"} <= {row[2] for row in generators}


def test_what_a_step_leaves_is_what_the_next_one_starts_from() -> None:
    rows = train(EVERY)
    left = {row[2]: row[4] for row in rows.rows if row[0] == 1 and row[1] == "param"}
    begins = rows.boundary(2)
    assert {name: begins[f"param.{name}"] for name in left} == left
    changing = {
        "scheduler.StepLR[0].last_epoch",
        "optimizer.0.weight.exp_avg",
        "param.0.weight",
        "scaler.growth_tracker",
    }
    assert all(rows.boundary(1)[name] != begins[name] for name in changing)
    assert rows.boundary(1)["optimizer.group0.lr"] != begins["optimizer.group0.lr"]  # StepLR lowers it after two steps


@pytest.mark.parametrize(
    ("capture", "steps"),
    [
        (CaptureConfig(), set()),
        (CaptureConfig(boundary=BoundaryCapture.first), {0}),
        (CaptureConfig(boundary=BoundaryCapture.every), {0, 1, 2, 3}),
        (CaptureConfig(boundary=BoundaryCapture.every, boundary_at=[1, 3]), {1, 3}),
    ],
)
def test_only_what_is_wanted_is_told(capture: CaptureConfig, steps: set[int]) -> None:
    rows = train(boundaries(capture))
    assert {row[0] for row in rows.rows if row[1] == "boundary"} == steps


def test_a_copy_that_is_made_later_is_seen_from_then_on() -> None:
    rows = Rows()
    model = Small(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    with watch(Recorder(rows), boundaries=EVERY):  # type: ignore[arg-type]
        for step in range(3):
            if step == 1:
                kept.append(copy.deepcopy(model))
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert "copy.Small[0].weight" not in rows.boundary(0)
    assert all("copy.Small[0].weight" in rows.boundary(step) for step in (1, 2))
    assert rows.boundary(1)["copy.Small[0].weight"] == rows.boundary(2)["copy.Small[0].weight"]


def test_everything_is_taken_off() -> None:
    def attributes() -> list[Any]:
        owners = [(LRScheduler, "__init__"), (ReduceLROnPlateau, "__init__"), (GradScaler, "__init__")]
        replaced = [vars(owner)[name] for owner, name in [*owners, (nn.Module, "__setstate__")]]
        return [*replaced, dict(nn_module._global_parameter_registration_hooks)]

    before = attributes()
    train(EVERY, copied=False)
    assert attributes() == before
