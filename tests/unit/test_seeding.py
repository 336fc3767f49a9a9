import gc
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import ddp_repro
from ddp_repro.errors import ReproError
from ddp_repro.run import root_seed, seeding
from ddp_repro.run.seeding import Stream, named_sequence, seed_sequence

small = st.integers(0, 2**20)
path = st.tuples(st.integers(0, 2**64 - 1), st.sampled_from(Stream), small, small, small, st.none() | small)


@pytest.fixture(autouse=True)
def no_root_seed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(root_seed, "_root", None)
    # Models that other tests left behind are not this test's.
    monkeypatch.setattr(root_seed, "_live_model", lambda: None)
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand((), dtype=torch.float64))


def sequence(key: tuple[int, Stream, int, int, int, int | None]) -> np.random.SeedSequence:
    seed, stream, shard, worker, epoch, index = key
    return seed_sequence(seed, stream, shard=shard, worker=worker, epoch=epoch, index=index)


@given(one=path, other=path)
def test_two_paths_share_no_stream(
    one: tuple[int, Stream, int, int, int, int | None], other: tuple[int, Stream, int, int, int, int | None]
) -> None:
    equal = [sequence(key).generate_state(4).tolist() for key in (one, other)]
    assert (equal[0] == equal[1]) == (one == other)


def test_no_stream_of_a_realistic_run_repeats_another() -> None:
    states = set()
    count = 0
    for seed in (0, 1, 2):
        for stream in Stream:
            for shard in range(4):
                for worker in range(4):
                    for epoch in range(4):
                        for index in (None, 0, 1, 2):
                            key = (seed, stream, shard, worker, epoch, index)
                            states.add(sequence(key).generate_state(2, np.uint64).tobytes())
                            count += 1
    assert len(states) == count


def test_neighbouring_seeds_and_shards_do_not_meet_as_sums_would() -> None:
    seeding.seed_training(0, shard=1)
    one = draws()
    seeding.seed_training(1, shard=0)
    other = draws()
    assert not set(one) & set(other)


def test_first_draws_differ_among_shards_in_every_library() -> None:
    seen = []
    for shard in range(16):
        seeding.seed_training(5, shard)
        seen.append(draws())
    for library in zip(*seen, strict=True):
        assert len(set(library)) == len(seen)


def test_the_model_stream_is_no_training_stream() -> None:
    seeding.seed_model(5)
    model = draws()
    seeding.seed_training(5, 0)
    assert not set(model) & set(draws())


# A changed derivation changes every run that was ever recorded; it must not happen unnoticed.
GOLDEN_WORDS = {
    (0, Stream.MODEL, 0, 0, 0, None): [4237079836, 880890286],
    (0, Stream.TRAINING, 1, 0, 0, None): [403051660, 3442435564],
    (7, Stream.WORKERS, 1, 2, 3, None): [3926152686, 1070769210],
    (7, Stream.SAMPLES, 0, 0, 3, 1796): [1822646483, 1862614236],
    (2**64 - 1, Stream.SHUFFLE, 0, 0, 1, None): [766647967, 428832422],
}


@pytest.mark.parametrize("key", GOLDEN_WORDS)
def test_derived_words_are_the_recorded_ones(key: tuple[int, Stream, int, int, int, int | None]) -> None:
    assert sequence(key).generate_state(2).tolist() == GOLDEN_WORDS[key]


def test_first_draws_are_the_recorded_ones() -> None:
    seeding.seed_model(0)
    assert draws() == GOLDEN_DRAWS
    words = named_sequence(0, "mixup", shard=1, epoch=2).generate_state(2).tolist()
    assert words == GOLDEN_NAMED


GOLDEN_DRAWS = (0.2577176557110864, 0.8818648110679246, 0.8518012267080551)
GOLDEN_NAMED = [1244462477, 4096020071]


def test_seed_everything_seeds_all_libraries_and_keeps_the_root() -> None:
    ddp_repro.seed_everything(3)
    one = draws()
    ddp_repro.seed_everything(3)
    assert draws() == one
    assert root_seed.root_seed() == 3


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True, None])
def test_what_is_no_seed_is_refused(seed: int) -> None:
    with pytest.raises(ReproError, match="whole number"):
        ddp_repro.seed_everything(seed)


def test_numpy_integers_are_seeds() -> None:
    seed: Any = np.int64(4)
    ddp_repro.seed_everything(seed)
    assert root_seed.root_seed() == 4
    assert type(root_seed.root_seed()) is int


def test_seed_training_gives_each_shard_its_own_stream() -> None:
    ddp_repro.seed_everything(3)
    ddp_repro.seed_training(0)
    one = draws()
    ddp_repro.seed_training(1)
    assert not set(one) & set(draws())
    ddp_repro.seed_training()
    assert draws() == one


def test_seed_training_takes_the_rank_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    ddp_repro.seed_everything(3)
    ddp_repro.seed_training(2)
    wanted = draws()
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    ddp_repro.seed_training()
    assert draws() == wanted


def test_named_generators_depend_on_name_shard_and_epoch_alone() -> None:
    ddp_repro.seed_everything(3)

    def first(name: str, shard: int = 0, epoch: int = 0) -> float:
        generator = ddp_repro.generator(name, shard=shard, epoch=epoch)
        return float(torch.rand((), dtype=torch.float64, generator=generator))

    kinds = [("mixup", 0, 0), ("noise", 0, 0), ("mixup", 1, 0), ("mixup", 0, 1)]
    values = [first(*kind) for kind in kinds]
    assert len(set(values)) == len(kinds)
    before = torch.get_rng_state()
    assert [first(*kind) for kind in kinds] == values
    assert torch.equal(torch.get_rng_state(), before), "a named generator drew from the global one"
    assert ddp_repro.generator("mixup", torch.device("cpu")).device.type == "cpu"


@pytest.mark.parametrize("call", [lambda: ddp_repro.generator("mixup"), ddp_repro.seed_training])
def test_without_a_root_seed_there_is_a_next_step(call: object) -> None:
    with pytest.raises(ReproError, match="no root seed") as raised:
        call()  # type: ignore[operator]
    assert "seed_everything" in raised.value.hint


class TestSeedAfterTheModel:
    @pytest.fixture(autouse=True)
    def real_scan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        # Only modules made from here on count, whatever other tests keep alive.
        old = {id(candidate) for candidate in gc.get_objects()}
        objects = gc.get_objects
        monkeypatch.setattr(gc, "get_objects", lambda: [o for o in objects() if id(o) not in old])
        monkeypatch.setattr(root_seed, "_root", None)

    def test_a_live_model_is_an_error_that_says_why(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2))
        with pytest.raises(ReproError, match=r"after a model was built \(Linear\)") as raised:
            ddp_repro.seed_everything(1)
        assert "before the model is built" in raised.value.hint
        assert "seed_training()" in raised.value.hint
        del model

    def test_a_model_that_is_gone_is_none(self) -> None:
        model = nn.Linear(2, 2)
        model.itself = model  # a cycle, as hooks make them
        del model
        ddp_repro.seed_everything(1)

    def test_modules_without_drawn_values_are_no_models(self) -> None:
        kept = [nn.ReLU(), nn.LazyLinear(3), nn.Linear(2, 2, device="meta"), nn.BatchNorm1d(3, affine=False)]
        ddp_repro.seed_everything(1)
        assert len(kept) == 4


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, ddp_repro; dir(ddp_repro); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_is_there() -> None:
    for name in ddp_repro.__all__:
        assert getattr(ddp_repro, name) is not None
        assert name in dir(ddp_repro)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ddp_repro.nothing
