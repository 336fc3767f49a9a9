"""Whether a sampler or data set is told the epoch before each further pass that trains."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from ddp_repro.errors import ReproError
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch

DATA = TensorDataset(torch.arange(6.0))


class Rows:
    """A writer that keeps names and values."""

    def __init__(self) -> None:
        self.values: dict[str, list[float | None]] = {}

    def append(self, *row: Any) -> None:
        self.values.setdefault(row[2], []).append(row[5])

    def extend(self, rows: list[Any]) -> None:
        for row in rows:
            self.append(*row)

    def append_many(self, *rows: Any) -> None:
        self.values.setdefault(rows[2], []).extend(rows[5])

    def flush(self) -> None:
        pass

    def guards(self) -> dict[str, list[float | None]]:
        return {name: seen for name, seen in self.values.items() if "guard" in name}


def shuffled(**options: Any) -> DistributedSampler[Any]:
    return DistributedSampler(DATA, **{"num_replicas": 1, "rank": 0, "shuffle": True, **options})


def train(loader: DataLoader[Any]) -> None:
    weight = torch.ones(1, requires_grad=True)
    for _ in loader:
        (weight * 2).sum().backward()  # type: ignore[no-untyped-call]


def test_a_sampler_that_is_trained_on_again_without_a_call_is_told_and_the_first_epoch_needs_none() -> None:
    rows, sampler = Rows(), shuffled()
    loader = DataLoader(DATA, batch_size=2, sampler=sampler)
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        train(loader)
        train(loader)
        sampler.set_epoch(2)
        train(loader)
        train(DataLoader(DATA, batch_size=2, sampler=sampler))
    assert rows.guards() == {"DistributedSampler[0].guard": [1.0], "DistributedSampler[1].guard": [1.0]}
    assert rows.values["DistributedSampler[0].pass"] == [0.0, 1.0, 2.0]


def test_a_call_before_each_epoch_satisfies_the_guard() -> None:
    rows, sampler = Rows(), shuffled()
    loader = DataLoader(DATA, batch_size=2, sampler=sampler)
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        for epoch in (0, 1, 1):
            sampler.set_epoch(epoch)
            train(loader)
    assert rows.guards() == {}
    assert "set_epoch" in vars(DistributedSampler)
    assert vars(DistributedSampler)["set_epoch"].__module__ == "torch.utils.data.distributed"


@pytest.mark.parametrize("trained", ["never", "evaluated again", "in order", "epoch kept by itself"])
def test_passes_that_need_no_call_are_left_alone(trained: str) -> None:
    class Counting(DistributedSampler[Any]):
        def __iter__(self) -> Iterator[Any]:
            self.epoch += 1
            return super().__iter__()

    rows = Rows()
    samplers = {"in order": shuffled(shuffle=False), "epoch kept by itself": Counting(DATA, 1, 0)}
    sampler = samplers.get(trained, shuffled())
    loader = DataLoader(DATA, batch_size=2, sampler=sampler)
    with watch(Recorder(rows), epoch_guard="error"):  # type: ignore[arg-type]
        for _ in range(3):
            if trained == "never":
                list(loader)
            elif trained == "evaluated again":
                with torch.no_grad():
                    list(loader)
            else:
                train(loader)
        if trained == "evaluated again":
            train(loader)
    assert rows.guards() == {}


class Buckets:
    """A batch sampler around one that takes epochs."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        return iter([list(self.sampler)])


class Delegating(Buckets):
    """One that hands the epoch on."""

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)


def test_what_is_hidden_in_a_batch_sampler_is_found() -> None:
    rows = Rows()
    loader = DataLoader(DATA, batch_sampler=Buckets(shuffled()))
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        for _ in range(2):
            for _batch in loader:
                torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
    assert rows.guards() == {"DistributedSampler[0].guard": [1.0]}


def test_what_hands_the_epoch_on_need_not_be_called_itself() -> None:
    rows, inner = Rows(), shuffled()
    outer = Delegating(inner)
    loader = DataLoader(DATA, batch_sampler=outer)
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        for taker in (inner, outer):
            taker.set_epoch(3)
            train(loader)
    assert rows.guards() == {}


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(4, generator=torch.Generator().manual_seed(self.epoch)))


def test_error_stops_at_once_with_the_name_and_fix_calls_it() -> None:
    stream = Stream()
    with watch(Recorder(Rows()), epoch_guard="error"):  # type: ignore[arg-type]
        train(DataLoader(stream))
        with pytest.raises(ReproError, match=r"^Stream is iterated again without a call of set_epoch"):
            train(DataLoader(stream))
    rows, sampler = Rows(), shuffled()
    loader = DataLoader(DATA, batch_size=3, sampler=sampler)
    with watch(Recorder(rows), epoch_guard="fix"):  # type: ignore[arg-type]
        for _ in range(3):
            train(loader)
    assert rows.guards() == {"DistributedSampler[0].guard_fixed": [1.0, 2.0]}
    assert rows.values["DistributedSampler[0].epoch"] == [0.0, 1.0, 2.0]
    assert rows.values["DistributedSampler[0].index"][6:12] != rows.values["DistributedSampler[0].index"][:6]


def test_another_mode_is_refused() -> None:
    with pytest.raises(ReproError, match="epoch_guard=mend"), watch(Recorder(None), epoch_guard="mend"):
        pass
