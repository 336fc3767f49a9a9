"""Data sets whose workers stay: whether set_epoch reaches their copies. (Workers are processes.)"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from ddp_repro.errors import ReproError
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from tests.unit.test_observe_epochs import Rows, train

pytestmark = pytest.mark.worlds


class Stream(IterableDataset[torch.Tensor]):
    """An order that follows from the epoch, which lies in shared memory or does not."""

    def __init__(self, *, shared: bool) -> None:
        self.epoch: Any = 0
        if shared:
            self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        if isinstance(self.epoch, torch.Tensor):
            self.epoch.fill_(epoch)
        else:
            self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(8, generator=torch.Generator().manual_seed(int(self.epoch))))


def observe(mode: str, *, shared: bool = False, persistent: bool = True) -> tuple[Rows, list[list[int]]]:
    rows, orders, stream = Rows(), [], Stream(shared=shared)
    loader = DataLoader(stream, num_workers=1, persistent_workers=persistent, batch_size=None)
    with watch(Recorder(rows), epoch_guard=mode):  # type: ignore[arg-type]
        for epoch in range(3):
            stream.set_epoch(epoch)
            order = []
            for sample in loader:
                order.append(int(sample))
                torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
            orders.append(order)
    return rows, orders


def test_a_call_that_does_not_reach_persistent_workers_is_told() -> None:
    rows, orders = observe("report")
    assert rows.guards() == {"Stream[0].guard": [2.0, 2.0]}
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("options", [{"shared": True}, {"persistent": False}])
def test_a_call_that_reaches_the_workers_satisfies_the_guard(options: dict[str, bool]) -> None:
    rows, orders = observe("error", **options)
    assert rows.guards() == {}
    assert orders[0] != orders[1] != orders[2]


def test_error_stops_at_the_first_batch_and_fix_calls_it_in_the_workers() -> None:
    with pytest.raises(ReproError, match="Stream was told the epoch in the main process"):
        observe("error")
    rows, orders = observe("fix")
    assert rows.guards() == {"Stream[0].guard_fixed": [1.0, 2.0]}
    assert orders == observe("report", persistent=False)[1]


def test_no_call_at_all_is_told_where_workers_stay_and_fix_reaches_them() -> None:
    rows, stream = Rows(), Stream(shared=False)
    loader = DataLoader(stream, num_workers=1, persistent_workers=True, batch_size=None)
    with watch(Recorder(rows), epoch_guard="fix"):  # type: ignore[arg-type]
        train(loader)
        train(loader)
    assert rows.guards() == {"Stream[0].guard_fixed": [1.0]}
