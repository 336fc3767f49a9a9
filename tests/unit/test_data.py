import copy
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import ddp_repro
from ddp_repro.errors import ReproError
from ddp_repro.run import root_seed
from ddp_repro.run.data import make_loader
from ddp_repro.run.sampler import EpochIndex, EpochSampler


class Drawing(Dataset[tuple[int, float, float, float]]):
    """Each sample tells its index and one draw of each library."""

    classes = ("a", "b")

    def __init__(self, length: int = 23) -> None:
        self.length = length
        self.kinds: set[type] = set()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        self.kinds.add(type(index))
        return index, random.random(), float(np.random.standard_normal()), float(torch.rand((), dtype=torch.float64))


def samples(loader: Any) -> list[tuple[float, ...]]:
    return [tuple(float(v) for v in row) for batch in loader for row in zip(*batch, strict=True)]


def indices(sampler: EpochSampler) -> list[int]:
    return [int(index) for index in sampler]


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world_size))


def main_streams() -> tuple[Any, ...]:
    arrays = repr([np.asarray(part).tolist() for part in np.random.get_state()])
    return random.getstate(), arrays, bytes(torch.get_rng_state().numpy().data)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


class TestOrder:
    def test_the_epoch_advances_by_itself(self) -> None:
        sampler = EpochSampler(range(20), seed=1)
        orders = [indices(sampler) for _ in range(3)]
        assert len({tuple(order) for order in orders}) == 3
        assert sampler.epoch == 2
        for epoch, order in enumerate(orders):
            stateless = EpochSampler(range(20), seed=1)
            stateless.set_epoch(epoch)
            assert indices(stateless) == order

    def test_the_epoch_is_the_pass_in_progress(self) -> None:
        loader = make_loader(Drawing(), seed=1, batch_size=4)
        sampler: Any = loader.sampler
        seen = [sampler.epoch for _ in range(2) for _ in loader]
        assert seen == [0] * 6 + [1] * 6

    def test_set_epoch_is_obeyed_and_counted_on_from(self) -> None:
        sampler = EpochSampler(range(20), seed=1)
        sampler.set_epoch(5)
        fifth = indices(sampler)
        assert indices(sampler) != fifth
        assert sampler.epoch == 6
        sampler.set_epoch(5)
        assert indices(sampler) == fifth

    def test_an_iterator_that_nothing_was_drawn_from_is_no_pass(self) -> None:
        sampler, plain = EpochSampler(range(20), seed=1), EpochSampler(range(20), seed=1)
        for _ in range(3):
            iter(sampler)
            assert indices(sampler) == indices(plain)
            assert sampler.epoch == plain.epoch

    def test_an_abandoned_pass_counts(self) -> None:
        sampler = EpochSampler(range(20), seed=1)
        next(iter(sampler))
        indices(sampler)
        assert sampler.epoch == 1

    @given(length=st.integers(1, 40), world_size=st.integers(1, 5), drop_last=st.booleans(), shuffle=st.booleans())
    def test_ranks_share_as_distributed_sampler_does(
        self, length: int, world_size: int, drop_last: bool, shuffle: bool
    ) -> None:
        if drop_last and length < world_size:
            return  # refused, see below
        with pytest.MonkeyPatch.context() as patch:
            shares = []
            for rank in range(world_size):
                as_rank(patch, rank, world_size)
                shares.append(EpochSampler(range(length), seed=3, shuffle=shuffle, drop_last=drop_last))
        orders = [indices(share) for share in shares]
        assert len({len(order) for order in orders}) == 1
        assert [len(order) for order in orders] == [len(share) for share in shares]
        visited = [index for group in zip(*orders, strict=True) for index in group]
        assert len(set(visited)) == min(len(visited), length)
        assert set(visited) <= set(range(length))
        if not drop_last:
            assert set(visited) == set(range(length))
            assert visited[length:] == (visited[:length] * world_size)[: len(visited) - length]
        if not shuffle:
            data: Any = range(length)
            theirs = [DistributedSampler[int](data, world_size, r, False, 0, drop_last) for r in range(world_size)]
            assert orders == [list(sampler) for sampler in theirs]

    def test_the_process_group_says_the_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_rank(monkeypatch, 0, 1)
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
        sampler = EpochSampler(range(20), seed=1)
        assert (sampler.rank, sampler.num_replicas) == (2, 3)

    def test_the_recorded_order(self) -> None:
        sampler = EpochSampler(range(8), seed=0)
        assert [indices(sampler), indices(sampler)] == GOLDEN_ORDERS

    def test_another_seed_is_another_order(self) -> None:
        assert indices(EpochSampler(range(50), seed=0)) != indices(EpochSampler(range(50), seed=1))

    def test_it_is_a_distributed_sampler_to_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_rank(monkeypatch, 1, 4)
        sampler = EpochSampler(range(20), seed=1)
        assert isinstance(sampler, DistributedSampler)
        assert (sampler.rank, sampler.num_replicas, len(sampler)) == (1, 4, 5)

    def test_an_index_survives_the_way_to_a_worker(self) -> None:
        index = EpochIndex(7, epoch=3, passed=2)
        for twin in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):  # noqa: S301 - what the queue does
            assert (twin, twin.epoch, twin.passed, type(twin)) == (7, 3, 2, EpochIndex)


GOLDEN_ORDERS = [[7, 3, 6, 5, 4, 1, 2, 0], [6, 0, 3, 4, 2, 1, 5, 7]]


class TestReseeding:
    def test_a_sample_depends_on_seed_epoch_and_index_alone(self) -> None:
        def drawn(seed: int = 1, epoch: int = 0, **options: Any) -> dict[float, tuple[float, ...]]:
            loader = make_loader(Drawing(), seed=seed, **{"batch_size": 4, **options})
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
            return {index: draws for index, *draws in samples(loader)}  # type: ignore[misc]

        base = drawn()
        assert drawn(batch_size=7) == base
        assert drawn(shuffle=False) == base
        assert len({value for draws in base.values() for value in draws}) == 3 * 23
        for other in (drawn(seed=2), drawn(epoch=1)):
            assert not {v for d in other.values() for v in d} & {v for d in base.values() for v in d}

    def test_the_ranks_of_any_world_draw_the_same_for_a_sample(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alone = {row[0]: row for row in samples(make_loader(Drawing(), seed=1, batch_size=4))}
        for rank in range(3):
            as_rank(monkeypatch, rank, 3)
            for row in samples(make_loader(Drawing(), seed=1, batch_size=4)):
                assert row == alone[row[0]]

    @pytest.mark.parametrize("reseed", ["sample", "worker"])
    def test_the_data_set_gets_plain_integers(self, reseed: str) -> None:
        data = Drawing()
        samples(make_loader(data, seed=1, reseed=reseed, batch_size=4))
        assert data.kinds == {int}

    def test_training_streams_stay_where_they_were(self) -> None:
        np.random.standard_normal()  # leaves one cached, which belongs to the state
        before = main_streams()
        loader = make_loader(Drawing(), seed=1, batch_size=4, collate_fn=mixing)
        assert len(list(loader)) == 6
        assert main_streams() == before
        assert loader.dataset[3][0] == 3
        assert main_streams() == before

    def test_an_error_in_a_sample_leaves_the_streams_as_well(self) -> None:
        class Broken(Drawing):
            def __getitem__(self, index: int) -> Any:
                super().__getitem__(index)
                raise LookupError(index)

        before = main_streams()
        with pytest.raises(LookupError):
            list(make_loader(Broken(), seed=1))
        assert main_streams() == before

    def test_a_loader_without_batches_is_seeded_too(self) -> None:
        single = {int(row[0]): tuple(row) for row in make_loader(Drawing(), seed=1, batch_size=None)}
        batched = {int(row[0]): row for row in samples(make_loader(Drawing(), seed=1, batch_size=4))}
        assert single == batched

    def test_mixing_in_the_collation_is_seeded(self) -> None:
        loaders = [make_loader(Drawing(), seed=1, batch_size=4, collate_fn=mixing) for _ in range(2)]
        random.seed(1)
        one = list(loaders[0])
        random.seed(2)
        assert list(loaders[1]) == one
        assert len({draw for draw, _ in one}) == len(one)
        assert {type(batch) for _, batch in one} == {list}

    def test_reseed_worker_in_the_main_process_draws_from_its_stream(self) -> None:
        random.seed(4)
        wanted = [random.random() for _ in range(23)]
        random.seed(4)
        drawn = [row[1] for row in samples(make_loader(Drawing(), seed=1, reseed="worker", batch_size=4))]
        assert drawn == wanted

    @pytest.mark.parametrize("reseed", ["sample", "worker"])
    def test_the_users_data_set_shows_through_and_travels(self, reseed: str) -> None:
        loader: DataLoader[Any] = make_loader(Drawing(), seed=1, reseed=reseed)
        seen: Any = loader.dataset
        assert seen.classes == ("a", "b")
        assert len(seen) == 23
        with pytest.raises(AttributeError):
            _ = seen.nothing
        assert len(pickle.loads(pickle.dumps(seen))) == 23  # noqa: S301 - how a spawned worker gets it


def mixing(batch: list[Any]) -> Any:
    return random.random(), batch


class TestRefusals:
    def test_a_root_seed_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(root_seed, "_root", None)
        with pytest.raises(ReproError, match="no root seed"):
            ddp_repro.make_loader(Drawing())
        monkeypatch.setattr(root_seed, "_root", 6)
        assert samples(ddp_repro.make_loader(Drawing())) == samples(make_loader(Drawing(), seed=6))

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"reseed": "epoch"}, "reseed='epoch' is not known"),
            ({"sampler": range(3)}, "was given sampler"),
            ({"batch_sampler": [[1]]}, "was given batch_sampler"),
            ({"seed": -1}, "seed=-1"),
        ],
    )
    def test_wrong_options(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(ReproError, match=said) as raised:
            make_loader(Drawing(), **{"seed": 1, **options})
        assert raised.value.hint

    def test_an_iterable_data_set(self) -> None:
        class Stream(IterableDataset[int]):
            def __iter__(self) -> Iterator[int]:
                return iter(range(3))

        with pytest.raises(ReproError, match="not an iterable one"):
            make_loader(Stream(), seed=1)

    def test_fewer_samples_than_ranks_with_the_rest_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_rank(monkeypatch, 0, 4)
        with pytest.raises(ReproError, match="3 samples leave none for each of 4 ranks"):
            make_loader(Drawing(3), seed=1, drop_last=True)
        assert len(samples(make_loader(Drawing(3), seed=1))) == 1

    def test_an_empty_data_set(self) -> None:
        with pytest.raises(ReproError, match="empty"):
            make_loader(Drawing(0), seed=1)


@given(length=st.integers(1, 40), left_out=st.integers(0, 50), epoch=st.integers(0, 3))
def test_a_pass_that_goes_on_begins_after_what_was_trained_on(length: int, left_out: int, epoch: int) -> None:
    whole, rest = (EpochSampler(list(range(length)), seed=1) for _ in range(2))
    for sampler in (whole, rest):
        sampler.set_epoch(epoch)
    rest.leave_out(left_out)
    assert list(rest) == list(whole)[left_out:]
    assert (rest.passed_over, whole.passed_over) == (left_out, 0)
    assert list(rest) == list(whole), "the next pass is a whole one"
    assert rest.passed_over == 0
