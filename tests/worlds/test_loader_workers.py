"""What a loader delivers does not depend on the processes that fetch it."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from ddp_repro.run.data import make_loader
from ddp_repro.workload import digits

pytestmark = pytest.mark.worlds

EPOCHS = 3
WAYS = [(0, False), (1, False), (1, True), (2, False), (2, True), (4, False), (4, True)]


class Drawing(Dataset[tuple[int, int, float, float, float]]):
    """Each sample tells its index, its worker (-1: main process) and one draw of each library."""

    def __len__(self) -> int:
        return 37

    def __getitem__(self, index: int) -> tuple[int, int, float, float, float]:
        worker = get_worker_info()
        drawn = random.random(), float(np.random.standard_normal()), float(torch.rand((), dtype=torch.float64))
        return (index, -1 if worker is None else worker.id, *drawn)


def mixed(batch: list[Any]) -> Any:
    return torch.stack([image for image, _ in batch]) + random.random() + torch.rand(()), [y for _, y in batch]


def epochs(loader: DataLoader[Any]) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(float(v) for v in row) for batch in loader for row in zip(*batch, strict=True)] for _ in range(EPOCHS)
    ]


def bits(loader: DataLoader[Any]) -> list[bytes]:
    return [images.numpy().tobytes() + bytes(labels) for _ in range(EPOCHS) for images, labels in loader]


@pytest.mark.parametrize("collate", [None, mixed])
def test_any_number_of_workers_gives_the_same_bits(collate: Any) -> None:
    data = digits.build("tiny").train_data
    results = []
    for number, (workers, persistent) in enumerate(WAYS):
        torch.manual_seed(number)  # whatever the main process drew before must not matter
        random.seed(number)
        loader = make_loader(
            data, seed=5, batch_size=101, collate_fn=collate, num_workers=workers, persistent_workers=persistent
        )
        results.append(bits(loader))
        del loader
    assert all(result == results[0] for result in results[1:])
    assert len(set(results[0])) == len(results[0]), "epochs repeat each other"


def test_without_batches_the_epochs_are_the_same_for_any_number_of_workers() -> None:
    loaders = [make_loader(Drawing(), seed=5, batch_size=None, num_workers=workers) for workers in (0, 2)]
    passes = [[[(sample[0], *sample[2:]) for sample in loader] for _ in range(EPOCHS)] for loader in loaders]
    assert passes[0] == passes[1]


def test_iterating_draws_nothing_from_the_training_streams() -> None:
    for workers, persistent in WAYS[:4]:
        before = torch.get_rng_state(), random.getstate()
        list(make_loader(Drawing(), seed=5, num_workers=workers, persistent_workers=persistent, batch_size=8))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]


def per_worker(monkeypatch: pytest.MonkeyPatch, rank: int, *, persistent: bool) -> list[list[tuple[float, ...]]]:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    return epochs(
        make_loader(Drawing(), seed=5, reseed="worker", num_workers=2, persistent_workers=persistent, batch_size=4)
    )


def test_by_worker_no_rank_worker_or_epoch_repeats_another(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = defaultdict(list)
    for rank in range(2):
        for epoch, rows in enumerate(per_worker(monkeypatch, rank, persistent=True)):
            for _, worker, *drawn in rows:
                streams[rank, worker, epoch].extend(drawn)
    assert len(streams) == 2 * 2 * EPOCHS
    drawn_in_all = [value for stream in streams.values() for value in stream]
    assert len(set(drawn_in_all)) == len(drawn_in_all)


def test_by_worker_persistent_workers_are_as_fresh_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    persistent = per_worker(monkeypatch, 1, persistent=True)
    assert persistent == per_worker(monkeypatch, 1, persistent=False)


def test_by_worker_a_repeated_epoch_is_repeated_by_persistent_workers() -> None:
    loader = make_loader(Drawing(), seed=5, reseed="worker", num_workers=2, persistent_workers=True, batch_size=4)
    passes = []
    for epoch in (3, 3):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        passes.append([[float(v) for v in row] for batch in loader for row in zip(*batch, strict=True)])
    assert passes[0] == passes[1]


def test_the_plant_a_loader_of_torch_alone_depends_on_its_workers() -> None:
    data = digits.build("tiny").train_data
    results = []
    for workers in (0, 2):
        torch.manual_seed(5)
        random.seed(5)
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(data, batch_size=101, shuffle=True, num_workers=workers, generator=generator)
        results.append(bits(loader))
    assert results[0] != results[1]
