"""Loaders without workers: what is recorded of order, content and generators, and that nothing is moved by it."""

import array
import copy
import itertools
import random
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    TensorDataset,
)

from ddp_repro.observe.content import batch_content, index_facts
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.recorder import Recorder, number
from ddp_repro.observe.rng_states import PrivateGenerators, process_states
from ddp_repro.observe.watch import watch
from ddp_repro.trace.schema import UNDRAWN

Row = tuple[int, str, str, str, bytes, float | None]


class Rows:
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def append(self, *row: Any) -> None:
        self.rows.append(row)

    def extend(self, rows: list[Row]) -> None:
        self.rows.extend(rows)

    def append_many(self, *rows: Any) -> None:
        *labels, digests, values = rows
        for at, value in enumerate(values):
            self.append(*labels, digests[16 * at : 16 * at + 16], value)

    def flush(self) -> None:
        pass

    def values(self, name: str) -> list[float | None]:
        return [row[5] for row in self.rows if row[2] == name]

    def names(self, phase: str) -> list[str]:
        return list(dict.fromkeys(row[2] for row in self.rows if row[1] == phase))


class Numbers(Dataset[torch.Tensor]):
    """Ten numbers, each with noise from a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index) + self.rng.random())


class LoudError(Exception):
    pass


def observe(loader: DataLoader[Any], passes: int = 1) -> Rows:
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        for _ in range(passes):
            for _batch in loader:
                pass
    return rows


def test_indices_content_and_facts_of_a_distributed_sampler() -> None:
    data = TensorDataset(torch.arange(7.0))
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=2, rank=1, shuffle=True, seed=5)
    loader = DataLoader(data, batch_size=3, sampler=sampler)
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        for epoch in (4, 5):
            sampler.set_epoch(epoch)
            batches = [batch[0] for batch in loader]
    name = "DistributedSampler[0]"
    assert rows.values(f"{name}.pass") == [0.0, 1.0]
    assert rows.values(f"{name}.epoch") == [4.0, 5.0]
    for fact, value in {"length": 7, "shuffle": 1, "drop_last": 0, "num_replicas": 2, "sampler_rank": 1}.items():
        assert rows.values(f"{name}.{fact}") == [value, value], fact
    assert rows.values(f"{name}.num_workers") == [0.0, 0.0]
    assert rows.values(f"{name}.index")[-4:] == torch.cat(batches).tolist()
    assert rows.values(f"{name}.end") == [2.0, 2.0]
    content = [row for row in rows.rows if row[2] == f"{name}.batch[0]"]
    assert [row[4] for row in content[-2:]] == [tensor_digest(batch) for batch in batches]
    assert content[-1][3] == "float32[1]"


def test_the_order_of_rows_is_that_of_causes() -> None:
    rows = observe(DataLoader(Numbers(), batch_size=5))
    kinds = [
        "facts" if phase == "data" and not name.endswith(("index", "end")) and ".batch" not in name else name
        for _, phase, name, *_ in rows.rows
    ]
    name = "SequentialSampler[0]"
    states = [f"{name}.main.dataset.rng.before", "python", "numpy", "torch"]
    batch = [f"{name}.index", *states, f"{name}.batch", f"{name}.main.dataset.rng.after"]
    assert list(dict.fromkeys(kinds)) == ["facts", *batch, f"{name}.end"]


def test_a_pass_that_is_left_early_has_no_end() -> None:
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2)
        next(iter(loader))
        exhausted = list(loader)
    assert len(exhausted) == 3
    assert rows.values("SequentialSampler[0].pass") == [0.0, 1.0]
    assert rows.values("SequentialSampler[0].end") == [3.0]
    assert rows.values("SequentialSampler[0].index") == [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_loaders_are_numbered_by_first_iteration() -> None:
    data = TensorDataset(torch.arange(4.0))
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        built_first, built_second = DataLoader(data), DataLoader(data, shuffle=True)
        list(built_second)
        list(built_first)
        list(built_second)
    assert rows.values("RandomSampler[0].pass") == [0.0, 1.0]
    assert rows.values("SequentialSampler[1].pass") == [0.0]
    assert rows.values("RandomSampler[0].shuffle") == [1.0, 1.0]
    assert rows.values("SequentialSampler[1].shuffle") == [0.0]


class Buckets(Sampler[list[int]]):
    """A batch sampler of another library, around a sampler."""

    def __init__(self, sampler: Sampler[int]) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        yield list(self.sampler)


def test_samplers_within_batch_samplers_are_found() -> None:
    data = TensorDataset(torch.arange(6.0))
    inner: DistributedSampler[Any] = DistributedSampler(data, num_replicas=3, rank=0, drop_last=True)
    inner.set_epoch(9)
    rows = observe(DataLoader(data, batch_sampler=Buckets(BatchSampler(inner, 2, drop_last=False))))  # type: ignore[arg-type]
    assert rows.values("DistributedSampler[0].epoch") == [9.0]
    assert rows.values("DistributedSampler[0].drop_last") == [1.0]
    assert rows.names("data")[-2:] == ["DistributedSampler[0].batch[0]", "DistributedSampler[0].end"]


def test_without_batching_one_index_makes_a_batch() -> None:
    rows = observe(DataLoader(TensorDataset(torch.arange(3.0)), batch_size=None))
    assert rows.values("SequentialSampler[0].index") == [0.0, 1.0, 2.0]
    assert rows.values("SequentialSampler[0].end") == [3.0]


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(5.0))


def test_an_iterable_data_set_has_content_and_no_indices() -> None:
    rows = observe(DataLoader(Stream(), batch_size=2))
    assert rows.names("data") == [f"Stream[0].{x}" for x in ("pass", "drop_last", "num_workers", "batch", "end")]
    assert rows.values("Stream[0].end") == [3.0]


def test_indices_that_are_no_numbers_are_recorded_as_text() -> None:
    table = {("a", 1): 1.0, ("b", 2): 2.0}
    rows = observe(DataLoader(table, sampler=list(table), batch_size=2))  # type: ignore[arg-type]
    indices = [row for row in rows.rows if row[2] == "list[0].index"]
    assert [row[3] for row in indices] == ["text", "text"]
    assert indices[0][4] != indices[1][4]


def test_private_generators_are_seen_before_and_after_each_batch() -> None:
    rows = observe(DataLoader(Subset(Numbers(), range(6)), batch_size=2))
    prefix = "SequentialSampler[0].main.dataset.dataset.rng"
    before = [row[4] for row in rows.rows if row[2] == f"{prefix}.before"]
    after = [row[4] for row in rows.rows if row[2] == f"{prefix}.after"]
    assert len(set(before)) == len(set(after)) == 3
    assert before[1:] == after[:-1]


def test_every_kind_of_private_generator_is_found_and_read() -> None:
    class Holder:
        def __init__(self) -> None:
            self.python = random.Random(1)
            self.choices: dict[str, list[Any]] = {"np": [np.random.RandomState(1), np.random.default_rng(2)]}
            self.torch = torch.Generator().manual_seed(3)
            self.shared = self.torch
            self.world = (random.random, np.random.mtrand._rand, torch.default_generator)
            self.me = self

    holder = Holder()
    found = PrivateGenerators(holder)
    found.look()
    states = found.states()
    assert set(states) == {"dataset.python", "dataset.choices.np[0]", "dataset.choices.np[1]", "dataset.torch"}
    assert found.states() == states
    holder.python.random()
    holder.choices["np"][0].randn()
    holder.choices["np"][1].random()
    torch.rand(1, generator=holder.torch)
    changed = found.states()
    assert all(changed[path] != states[path] for path in states)


def test_a_generator_that_is_put_in_its_place_is_read_from_there() -> None:
    data = Numbers()
    found = PrivateGenerators(data)
    found.look()
    first = found.states()
    data.rng = np.random.default_rng(4)
    assert found.states() != first
    del data.rng
    assert found.states() == {}


@pytest.mark.parametrize("bit_generator", [np.random.MT19937, np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_states_of_all_numpy_generators_differ_after_a_draw(bit_generator: Any) -> None:
    class Holder:
        rng: Any

    holder = Holder()
    holder.rng = np.random.Generator(bit_generator(7))
    found = PrivateGenerators(holder)
    found.look()
    before = found.states()
    holder.rng.integers(10, dtype=np.uint32)
    after = found.states()
    assert before != after
    holder.rng.integers(10, dtype=np.uint32)  # some keep half a word for the next draw
    assert found.states() != after


def test_process_states_follow_every_draw_and_move_nothing() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
    first = dict(process_states())
    assert dict(process_states()) == first
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
    draws: dict[str, Any] = {"python": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(1)}
    for name, draw in draws.items():
        draw()
        now = dict(process_states())
        assert [key for key in now if now[key] != first[key]] == [name]
        first = now


class Drawing(Dataset[float]):
    """Samples that draw from Python's generator from the third on."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> float:
        return random.random() if index >= 2 else 0.0


def test_a_generator_tells_nothing_until_it_is_drawn_from_and_then_its_state() -> None:
    launches = []
    for _ in range(2):
        random.seed()
        np.random.seed()
        rows = observe(DataLoader(Drawing()))
        launches.append({name: [row[4] for row in rows.rows if row[2] == name] for name in ("python", "numpy")})
    first, second = launches
    assert first["numpy"] == second["numpy"] == [UNDRAWN] * 5
    assert first["python"][:2] == second["python"][:2] == [UNDRAWN] * 2
    assert all(x != y for x, y in zip(first["python"][2:], second["python"][2:], strict=True))
    assert UNDRAWN not in first["python"][2:]


def test_a_generator_that_was_seeded_in_the_script_tells_its_state_at_once() -> None:
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        random.seed(5)
        list(DataLoader(Drawing()))
        random.seed(5)
    told = [row[4] for row in rows.rows if row[2] == "python"]
    assert told[0] == told[1] == dict(process_states())["python"]


def test_the_second_of_two_normal_numbers_changes_the_state_though_no_word_does() -> None:
    np.random.seed(5)
    seen = [dict(process_states())["numpy"]]
    for _ in range(4):
        np.random.randn()
        seen.append(dict(process_states())["numpy"])
    random.seed(5)
    seen.append(dict(process_states())["python"])
    for _ in range(2):
        random.gauss(0.0, 1.0)
        seen.append(dict(process_states())["python"])
    assert len(set(seen)) == len(seen)
    np.random.seed(5)
    assert dict(process_states())["numpy"] == seen[0]


def test_observing_moves_no_generator() -> None:
    def run(observed: bool) -> list[Any]:
        torch.manual_seed(2)
        np.random.seed(2)
        random.seed(2)
        loader = DataLoader(Numbers(), batch_size=3, shuffle=True)
        batches = observe_batches(loader) if observed else [batch for _ in range(2) for batch in loader]
        draws = [torch.rand(3), torch.tensor(np.random.rand(3)), torch.tensor(random.random())]
        return [tensor_digest(x) for x in [*batches, *draws]]

    def observe_batches(loader: DataLoader[Any]) -> list[torch.Tensor]:
        with watch(Recorder(Rows())):  # type: ignore[arg-type]
            return [batch for _ in range(2) for batch in loader]

    assert run(observed=True) == run(observed=False)


def test_a_loader_that_raises_raises_the_same() -> None:
    class Broken(Dataset[int]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            if index == 1:
                raise LoudError("sample 1")
            return index

    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        batches = iter(DataLoader(Broken()))
        assert next(batches) == 0
        with pytest.raises(LoudError, match="sample 1"):
            next(batches)
        assert next(batches) == 2
    assert rows.values("SequentialSampler[0].index") == [0.0, 2.0]
    assert rows.values("SequentialSampler[0].end") == []


class Pair(NamedTuple):
    x: Any
    y: Any


def test_content_is_named_by_its_place_however_nested() -> None:
    batch = {
        "image": torch.zeros(2),
        "meta": Pair([1, 2.0], "text"),
        "array": np.zeros((2, 3), dtype=np.float32),
        "flag": True,
        "nothing": None,
    }
    leaves = dict(batch_content(batch, "b"))
    assert {name: fact[0] for name, fact in leaves.items()} == {
        "b.image": "float32[2]",
        "b.meta.x[0]": "int64[]",
        "b.meta.x[1]": "float64[]",
        "b.meta.y": "text",
        "b.array": "numpy float32[2,3]",
        "b.flag": "bool[]",
        "b.nothing": "None",
    }
    assert leaves["b.meta.x[1]"] == number(2.0)


class Slotted:
    __slots__ = ("__hidden", "__weakref__", "x")

    def __init__(self, x: Any, hidden: Any) -> None:
        self.x, self.__hidden = x, hidden


class SlotsAndMore(Slotted):
    def __init__(self, x: Any, hidden: Any) -> None:
        super().__init__(x, hidden)
        self.y: Any = self


def test_objects_are_told_by_slots_and_attributes() -> None:
    leaves = dict(batch_content(SlotsAndMore(1, "h"), "b"))
    assert {name: fact[0] for name, fact in leaves.items()} == {
        "b.x": "int64[]",
        "b._Slotted__hidden": "text",
        "b.y": "again",
    }
    assert leaves != dict(batch_content(SlotsAndMore(1, "other"), "b"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (array.array("d", [1.0]), array.array("d", [2.0])),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (Decimal("1.0"), Decimal("1.00")),
        (Path("a"), Path("b")),
        (deque([1]), deque([2])),
        (np.array([np.zeros(2000), "x"], object), np.array([np.eye(1, 2000, 1000), "x"], object)),
        ([], [None]),
    ],
)
def test_what_has_no_attributes_is_told_by_its_content(one: Any, other: Any) -> None:
    leaves = batch_content(one, "b")
    assert leaves == batch_content(copy.deepcopy(one), "b")
    assert leaves != batch_content(other, "b")
    assert not any(fact[0].startswith("opaque") for _, fact in leaves)


def test_what_cannot_be_seen_into_is_called_opaque() -> None:
    seen = dict(batch_content([itertools.count(3), {torch.Generator()}, [object()] * 400], "b"))
    opaque = [(name, fact[0]) for name, fact in seen.items() if fact[0].startswith("opaque")]
    assert opaque[:3] == [("b[0]", "opaque count"), ("b[1]", "opaque set"), ("b[2][0]", "opaque object")]
    assert opaque[-1] == ("b.rest", "opaque object")
    assert index_facts([object()])[0][0] == "opaque object"


def test_a_batch_of_very_many_leaves_is_recorded_whole() -> None:
    first, second = list(range(400)), list(range(400))
    second[390] = -1
    names = [name for name, _ in batch_content(first, "b")]
    assert len(names) == 257
    assert names[-1] == "b.rest"
    differing = [x[0] for x, y in zip(batch_content(first, "b"), batch_content(second, "b"), strict=True) if x != y]
    assert differing == ["b.rest"]


def test_random_sampler_types_are_left_alone() -> None:
    loader = DataLoader(TensorDataset(torch.arange(4.0)), shuffle=True)
    plain_type = type(iter(loader))
    with watch(Recorder(Rows())):  # type: ignore[arg-type]
        batches = iter(loader)
        assert type(batches) is plain_type
        assert type(loader.sampler) is RandomSampler
        assert len(batches) == 4
