import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ddp_repro.errors import ReproError
from ddp_repro.run import seeding
from ddp_repro.run.data import make_loader
from ddp_repro.workload import digits


def parameters(size: str) -> int:
    return sum(p.numel() for p in digits.build(size).model.parameters())


def test_the_data_are_the_digits() -> None:
    images, labels = digits.load()
    assert (images.shape, labels.shape) == ((1797, 8, 8), (1797,))
    assert (str(images.dtype), str(labels.dtype)) == ("float32", "int64")
    assert (images.min(), images.max()) == (0, 1)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_altered_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(digits._FILE) as stored:
        images, labels = stored["images"], stored["labels"]
    monkeypatch.setattr(digits, "_FILE", tmp_path / "digits.npz")
    np.savez_compressed(digits._FILE, images=images, labels=labels)
    digits.load()
    images[1000, 3, 3] ^= 1
    np.savez_compressed(digits._FILE, images=images, labels=labels)
    with pytest.raises(ReproError, match="does not hold the digits"):
        digits.load()
    digits._FILE.write_bytes(b"nothing")
    with pytest.raises(ReproError, match="cannot be read"):
        digits.load()
    digits._FILE.unlink()
    with pytest.raises(ReproError, match="cannot be read"):
        digits.load()


def test_no_batch_and_no_world_divides_the_training_data() -> None:
    workload = digits.build()
    length = len(workload.train_data)  # type: ignore[arg-type]
    assert all(length % divisor for divisor in (2, 3, 4, workload.batch_size, 4 * workload.batch_size))
    assert length + len(workload.eval_data) == workload.data_identity["length"] == 1797  # type: ignore[arg-type]


def test_sizes_go_from_tiny_to_ten_million() -> None:
    sizes = [parameters(size) for size in ("tiny", "small", "base")]
    assert sizes == sorted(sizes)
    assert sizes[0] < 20_000
    assert 9_000_000 < sizes[2] < 11_000_000


def test_augmentation_draws_from_all_three_libraries() -> None:
    data = digits.build("tiny").train_data

    def seeded() -> torch.Tensor:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        return torch.cat([data[index][0] for index in range(8)])

    base = seeded()
    assert torch.equal(seeded(), base)
    for reseed in (random.seed, np.random.seed, torch.manual_seed):
        seeded()
        images = []
        for seed in (1, 2):
            random.seed(1)
            np.random.seed(1)
            torch.manual_seed(1)
            reseed(seed)
            images.append(torch.cat([data[index][0] for index in range(8)]))
        assert not torch.equal(*images), reseed


def test_validation_images_are_as_they_are() -> None:
    data = digits.build("tiny").eval_data
    assert data is not None
    images, labels = digits.load()
    image, label = data[0]
    assert image.numpy().tobytes() == images[1499].tobytes()
    assert label == labels[1499]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"size": "huge"}, "size=huge"),
        ({"colour": 3}, "no option colour"),
        ({"batch_size": 0}, "batch_size=0 is too small"),
        ({"batch_size": "many"}, "not of type int"),
        ({"lr": -0.1}, "too small"),
        ({"dropout": 1.5}, "dropout"),
    ],
)
def test_wrong_options(overrides: dict[str, object], said: str) -> None:
    with pytest.raises(ReproError, match=said) as raised:
        digits.build(**overrides)  # type: ignore[arg-type]
    assert raised.value.hint


def test_whole_numbers_are_fine_where_fractions_go() -> None:
    assert digits.build("tiny", clip_norm=2).clip_norm == 2.0
    assert digits.build("tiny", clip_norm=0.0).clip_norm is None


def train(size: str, epochs: int) -> tuple[list[float], float]:
    seeding.seed_model(0)
    workload = digits.build(size)
    seeding.seed_training(0, 0)
    loader = make_loader(workload.train_data, seed=0, batch_size=workload.batch_size)
    optimizer = workload.optimizer(workload.model)
    assert workload.scheduler is not None
    scheduler = workload.scheduler(optimizer, epochs * len(loader))
    losses = []
    for _ in range(epochs):
        for batch in loader:
            loss = workload.loss(workload.model, batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    workload.model.eval()
    assert workload.metric is not None
    assert workload.eval_data is not None
    right, count = workload.metric(workload.model, next(iter(torch.utils.data.DataLoader(workload.eval_data, 298))))
    assert count == 298
    assert optimizer.param_groups[0]["lr"] < 1e-5, "the schedule ends near nothing"
    return losses, right / count


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_it_learns_and_repeats_in_bits() -> None:
    losses, accuracy = train("tiny", 3)
    assert accuracy > 0.75
    assert train("tiny", 3) == (losses, accuracy)
