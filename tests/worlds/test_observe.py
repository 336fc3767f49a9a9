"""Real worlds, each case trained unobserved, observed, and unobserved again: the same bits, and the right rows.

This file is also the script that the ranks run; several cases share one world, as a world costs seconds.
"""

import gc
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

from ddp_repro.observe.digest import bytes_digest, tensor_digest
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.trace.reader import Observation, read_trace
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from tests.worlds.forks import be_ranks, run_world

pytestmark = pytest.mark.worlds

SAMPLES, BATCH, EPOCHS = 23, 3, 2  # no rank has a batch of one sample, which batch norm refuses


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples with noise from all of Python, NumPy, torch and a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(11)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + np.random.rand() + self.rng.random()
        return torch.full((6,), index / SAMPLES) + noise + torch.rand(6), torch.tensor(index % 3)


class Net(nn.Module):
    def __init__(self, *, reentrant: bool, unused: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, 3)
        self.reentrant = reentrant
        if unused:
            self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.first, x.requires_grad_(), use_reentrant=True) if self.reentrant else self.first(x)
        return self.last(self.drop(self.norm(hidden)))  # type: ignore[no-any-return]


def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@dataclass(frozen=True, kw_only=True)
class Case:
    ddp: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer] = sgd
    accumulate: int = 1
    clip: bool = False
    reentrant: bool = False
    unused: bool = False


WORKERS = {"num_workers": 2}
CASES = {
    "plain": Case(),
    "bucket_view": Case(ddp={"gradient_as_bucket_view": True}, clip=True),
    "static_graph": Case(ddp={"static_graph": True}),
    "find_unused": Case(ddp={"find_unused_parameters": True}, unused=True),
    "accumulate": Case(accumulate=2),
    "adamw_foreach": Case(optimizer=lambda parameters: torch.optim.AdamW(parameters, foreach=True), clip=True),
    "adamw_fused": Case(optimizer=lambda parameters: torch.optim.AdamW(parameters, fused=True)),
    "reentrant": Case(reentrant=True),
    "workers": Case(loader=WORKERS),
    "persistent": Case(loader={**WORKERS, "persistent_workers": True, "prefetch_factor": 1}),
    "unordered": Case(loader={**WORKERS, "in_order": False}),
    "spawn": Case(loader={**WORKERS, "multiprocessing_context": "spawn", "persistent_workers": True}),
}
CORE = ["plain", "accumulate"]
AT_THREE = [name for name in CASES if name not in {"spawn", "unordered"}]
WORLDS = {1: [*CORE, "workers", "persistent", "spawn", "unordered"], 2: CORE, 3: AT_THREE, 4: CORE}
AGAIN = {"plain", "accumulate", "persistent"}
"""Cases that are trained unobserved again, after they were observed."""
ONCE = {"spawn", "unordered"}
"""Cases that are trained observed alone: spawning is slow, and unordered batches have no bits to compare."""


# -- what a rank does


def train(case: Case, recorder: Recorder | None) -> dict[str, Any]:
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(Net(reentrant=case.reentrant, unused=case.unused), bucket_cap_mb=0.0002, **case.ddp)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(100 + rank)
    optimizer = case.optimizer(model.parameters())
    data = Noisy()
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, **case.loader)
    indices, number = [], 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        indices += list(sampler)
        for x, y in loader:
            number += 1
            whole = number % case.accumulate == 0
            with nullcontext() if whole else model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            if not whole:
                continue
            if case.clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
    final = end_state(model, optimizer)
    names = [name for name, _ in model.module.named_parameters()]
    # The wrapper has to be gone before the process group is.
    del model, optimizer, loader
    gc.collect()
    return {"final": final, "indices": indices, "names": names, "steps": 0 if recorder is None else recorder.step}


def end_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    tensors = [*model.parameters(), *model.buffers(), torch.rand(2), torch.from_numpy(np.random.rand(2))]
    for state in optimizer.state.values():
        tensors.extend(value for value in state.values() if isinstance(value, torch.Tensor))
    return [*(tensor_digest(tensor).hex() for tensor in tensors), str(random.random())]


def observed(case: Case, path: Path) -> dict[str, Any]:
    meta = TraceMeta(identity="", launch=0, rank=dist.get_rank(), world_size=dist.get_world_size(), capture="step")
    writer = TraceWriter(path, meta)
    recorder = Recorder(writer)
    with watch(recorder):
        result = train(case, recorder)
    writer.close("finished")
    return result


def rank_main(folder: Path, rank: int, world_size: int, cases: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size)
    results = {}
    for name in cases:
        case = CASES[name]
        plain = name not in ONCE
        before = train(case, None) if plain else None
        during = observed(case, folder / f"{name}-{rank}.arrows")
        after = train(case, None) if name in AGAIN else before
        results[name] = {"before": before, "during": during, "after": after}
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)


# -- what is asserted


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the ranks of one world say: results and rows by case and rank."""

    world_size: int
    results: list[dict[str, Any]]
    rows: dict[str, list[list[Observation]]]


@pytest.fixture(scope="module")
def worlds() -> Iterator[Callable[[int], Seen]]:
    seen: dict[int, Seen] = {}
    with tempfile.TemporaryDirectory() as root:

        def world(size: int) -> Seen:
            if size not in seen:
                folder = Path(root, str(size))
                folder.mkdir()
                seen[size] = start_world(folder, size, WORLDS[size])
            return seen[size]

        yield world


def start_world(folder: Path, size: int, cases: list[str]) -> Seen:
    done = run_world(__file__, folder, size, *cases)
    assert done.returncode == 0, done.stderr
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    rows = {name: [rows_of(folder / f"{name}-{rank}.arrows") for rank in range(size)] for name in cases}
    return Seen(world_size=size, results=results, rows=rows)


def rows_of(path: Path) -> list[Observation]:
    trace = read_trace(path)
    assert trace.whole
    assert trace.end == "finished"
    return [trace.observation(row) for row in range(len(trace))]


EVERY = [(size, case) for size, cases in sorted(WORLDS.items()) for case in cases]
World = Callable[[int], Seen]


@pytest.mark.parametrize(("size", "case"), [(size, case) for size, case in EVERY if case not in ONCE])
def test_observing_moves_no_bit(worlds: World, size: int, case: str) -> None:
    for rank, results in enumerate(worlds(size).results):
        result = results[case]
        assert result["during"]["final"] == result["before"]["final"], f"rank {rank}"
        assert result["after"] == result["before"], f"rank {rank}: something stayed behind"


@pytest.mark.parametrize(("size", "case"), EVERY)
def test_steps_count_from_nought_and_phases_come_in_causal_order(worlds: World, size: int, case: str) -> None:
    seen = worlds(size)
    accumulate = CASES[case].accumulate
    order = ["data", "rng", "buffer", "loss", "grad_local", "grad_reduced", "grad_step", "param", "optimizer"]
    for rank, rows in enumerate(seen.rows[case]):
        steps = seen.results[rank][case]["during"]["steps"]
        assert [row.seq for row in rows] == list(range(len(rows)))
        assert list(dict.fromkeys(row.step for row in rows)) == list(range(-1, steps + (rows[-1].step == steps)))
        assert {row.phase for row in rows if row.step == -1} == {"init"}
        for step in range(steps):
            phases = list(dict.fromkeys(row.phase for row in rows if row.step == step))
            if case == "reentrant":
                assert set(phases) == set(order)
            else:
                assert phases == order
            assert sum(row.name == "loss" for row in rows if row.step == step) == accumulate


@pytest.mark.parametrize(("size", "case"), EVERY)
def test_the_indices_are_those_of_the_sampler_with_their_batch(worlds: World, size: int, case: str) -> None:
    seen = worlds(size)
    for rank, rows in enumerate(seen.rows[case]):
        expected = seen.results[rank][case]["during"]["indices"]
        delivered = [row.value or 0.0 for row in rows if row.name == "DistributedSampler[0].index"]
        epochs = [row.value for row in rows if row.name == "DistributedSampler[0].epoch"]
        if case == "unordered":
            assert sorted(delivered) == sorted(expected)
        else:
            assert delivered == expected
        labels_follow_indices(rows)
        assert epochs == list(range(EPOCHS))
        assert [row.value for row in rows if row.name == "DistributedSampler[0].pass"] == list(range(EPOCHS))
        assert [row.value for row in rows if row.name == "DistributedSampler[0].end"] == [
            -(-len(expected) // 2 // BATCH)
        ] * 2


def labels_follow_indices(rows: list[Observation]) -> None:
    """Assert that each batch of labels is the one of the indices that were recorded with it."""
    indices: list[int] = []
    batches = 0
    for row in rows:
        if row.name == "DistributedSampler[0].index":
            assert row.value is not None
            indices.append(int(row.value))
        elif row.name == "DistributedSampler[0].batch[1]":
            labels = np.array([index % 3 for index in indices], dtype=np.int64)
            assert row.digest == bytes_digest(labels.tobytes(), f"int64[{len(labels)}]")
            indices.clear()
            batches += 1
    assert batches > 0
    assert not indices


@pytest.mark.parametrize(("size", "case"), [(size, case) for size, case in EVERY if size > 1])
def test_local_gradients_differ_and_what_is_replicated_agrees(worlds: World, size: int, case: str) -> None:
    seen = worlds(size)
    ranks = seen.rows[case]
    names = seen.results[0][case]["during"]["names"]
    used = [name for name in names if not name.startswith("unused")]
    for rows in ranks:
        assert sorted({row.name for row in rows if row.phase == "grad_local"}) == sorted(used)
    assert all(len({digests(rows, "grad_local", name) for rows in ranks}) == size for name in used)
    replicated = [
        [(r.step, r.phase, r.name, r.digest) for r in rows if r.spec.endswith(" replicated")] for rows in ranks
    ]
    assert all(rows == replicated[0] for rows in replicated)
    expected = {"init", "buffer", "grad_reduced", "grad_step", "param", "optimizer"}
    assert expected == {phase for _, phase, _, _ in replicated[0]}
    for rows in ranks:
        assert {row.name for row in rows if row.phase == "grad_reduced"} >= set(used)
        assert digests(rows, "grad_reduced", "last.weight") != digests(rows, "grad_local", "last.weight")


def digests(rows: list[Observation], phase: str, name: str) -> tuple[bytes, ...]:
    return tuple(row.digest for row in rows if row.phase == phase and row.name == name)


def test_spawned_workers_give_the_bits_of_forked_ones(worlds: World) -> None:
    [results] = worlds(1).results
    assert results["spawn"]["during"]["final"] == results["persistent"]["before"]["final"]


def test_batch_norm_differs_between_ranks_after_the_step_and_not_at_the_next_forward(worlds: World) -> None:
    ranks = worlds(3).rows["plain"]
    spec = "float32[8]"
    after = [
        [r.digest for r in rows if r.phase == "buffer" and r.name == "norm.running_mean" and r.spec == spec]
        for rows in ranks
    ]
    assert all(len(set(digests_at)) == 3 for digests_at in zip(*after, strict=True))


def test_buffers_are_not_called_replicated_after_a_forward_in_no_sync(worlds: World) -> None:
    [rows, *_] = worlds(3).rows["accumulate"]
    specs = [row.spec for row in rows if row.step == 1 and row.phase == "buffer" and row.name == "norm.running_var"]
    # At the forward in no_sync, at the one after it, and after the step.
    assert specs == ["float32[8] replicated", "float32[8]", "float32[8]"]
    assert sum(row.name == "last.bias" for row in rows if row.step == 1 and row.phase == "grad_local") == 2
    assert sum(row.name == "last.bias" for row in rows if row.step == 1 and row.phase == "grad_reduced") == 1


def test_clipping_shows_between_reduced_gradients_and_the_optimizer(worlds: World) -> None:
    for case, clipped in (("plain", False), ("bucket_view", True)):
        [rows, *_] = worlds(3).rows[case]
        same = digests(rows, "grad_step", "last.weight") == digests(rows, "grad_reduced", "last.weight")
        assert same is not clipped


def test_the_layout_of_buckets_changes_once_where_ddp_rebuilds_them(worlds: World) -> None:
    for case, layouts in (("plain", 2), ("find_unused", 1), ("static_graph", 2)):
        [rows, *_] = worlds(3).rows[case]
        seen = digests(rows, "grad_reduced", "bucket_layout")
        assert len(set(seen)) == layouts, case
        assert sum(first != second for first, second in pairwise(seen)) == layouts - 1


LIBRARIES = ["python", "numpy", "torch", "dataset.rng"]


@pytest.mark.parametrize(("size", "case"), [(3, "workers"), (3, "persistent"), (1, "spawn"), (1, "unordered")])
def test_states_of_workers_come_with_their_batches(worlds: World, size: int, case: str) -> None:
    for rows in worlds(size).rows[case]:
        for worker in (0, 1):
            for library in LIBRARIES:
                name = f"DistributedSampler[0].worker{worker}.{library}"
                before, after = digests(rows, "rng", f"{name}.before"), digests(rows, "rng", f"{name}.after")
                assert len(before) == len(after) >= 2
                assert all(x != y for x, y in zip(before, after, strict=True)), "each batch draws"
        if case in {"persistent", "spawn"}:
            # Nothing but fetching draws in a worker that stays.
            name = "DistributedSampler[0].worker0.numpy"
            assert digests(rows, "rng", f"{name}.before")[1:] == digests(rows, "rng", f"{name}.after")[:-1]


def test_a_private_generator_that_fork_copied_shows_as_equal_draws(worlds: World) -> None:
    """The fault of practice that these rows are for: both workers, on all ranks, draw the same numbers."""
    first = {
        digests(rows, "rng", f"DistributedSampler[0].worker{worker}.dataset.rng.before")[0]
        for rows in worlds(3).rows["workers"]
        for worker in (0, 1)
    }
    reseeded = {
        digests(rows, "rng", f"DistributedSampler[0].worker{worker}.torch.before")[0]
        for rows in worlds(3).rows["workers"]
        for worker in (0, 1)
    }
    assert len(first) == 1
    assert len(reseeded) == 6


def test_without_workers_the_main_process_shows_what_the_batch_drew(worlds: World) -> None:
    for rows in worlds(3).rows["plain"]:
        states = {name: digests(rows, "rng", name) for name in ("python", "numpy", "torch")}
        assert all(len(set(seen)) == len(seen) > 2 for seen in states.values())
        private = "DistributedSampler[0].main.dataset.rng"
        assert digests(rows, "rng", f"{private}.before")[1:] == digests(rows, "rng", f"{private}.after")[:-1]


class Rows:
    """A writer that keeps the names and values it gets."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def append(self, *row: Any) -> None:
        self.values.setdefault(row[2], []).append(row[5])

    def extend(self, rows: Any) -> None:
        for row in rows:
            self.append(*row)

    def append_many(self, *rows: Any) -> None:
        self.values.setdefault(rows[2], []).extend(rows[5])

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}])
def test_a_loader_whose_workers_stay_outlives_the_observer(options: dict[str, Any]) -> None:
    loader: DataLoader[Any] = DataLoader(range(5), num_workers=2, persistent_workers=True, **options)  # type: ignore[arg-type]
    plain = [torch.as_tensor(batch).tolist() for batch in DataLoader(range(5), **options)]  # type: ignore[arg-type]

    def batches() -> list[Any]:
        return [torch.as_tensor(batch).tolist() for batch in loader]

    rows = [Rows(), Rows()]
    with watch(Recorder(rows[0])):  # type: ignore[arg-type]
        assert batches() == plain
    assert batches() == plain
    with watch(Recorder(rows[1])):  # type: ignore[arg-type]
        assert batches() == plain
    for seen in rows:
        assert seen.values["SequentialSampler[0].index"] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_workers_that_are_older_than_the_observer_are_followed_in_order() -> None:
    loader: DataLoader[Any] = DataLoader(range(5), num_workers=2, persistent_workers=True, batch_size=2)  # type: ignore[arg-type]
    first = [batch.tolist() for batch in loader]
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        assert [batch.tolist() for batch in loader] == first
    assert rows.values["SequentialSampler[0].index"] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert rows.values["SequentialSampler[0].end"] == [3.0]


class Broken(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise LookupError("sample 2 is broken")
        return index


def test_a_worker_that_raises_raises_the_same() -> None:
    def told(loader: DataLoader[int]) -> tuple[list[Any], str]:
        got = []
        batches = iter(loader)
        error = ""
        for _ in range(len(loader)):
            try:
                got.append(next(batches).tolist())
            except LookupError as raised:
                error = str(raised)
        return got, error

    loader = DataLoader(Broken(), num_workers=2)
    plain = told(loader)
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        assert told(loader) == plain
    assert "sample 2 is broken" in plain[1]
    assert rows.values["SequentialSampler[0].index"] == [0.0, 1.0, 3.0]


class Counted(IterableDataset[int]):
    """Each worker gives as many samples as its number and three more."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        return iter(range(3 + (0 if worker is None else worker.id)))


def test_an_iterable_data_set_in_workers_of_different_length() -> None:
    loader = DataLoader(Counted(), num_workers=2, batch_size=2)
    plain = [batch.tolist() for batch in loader]
    rows = Rows()
    with watch(Recorder(rows)):  # type: ignore[arg-type]
        assert [batch.tolist() for batch in loader] == plain
    assert rows.values["Counted[0].end"] == [float(len(plain))]
    assert "Counted[0].worker1.torch.before" in rows.values
    assert "Counted[0].index" not in rows.values


if __name__ == "__main__":
    place, ranks, named = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    sys.exit(any(be_ranks(ranks, lambda rank: rank_main(place, rank, ranks, named))))
