"""Which suspects a command has, what switches each of them off, and why the others are left out."""

import sys
from functools import partial
from pathlib import Path

import pytest

from ddp_repro.cli.command import Command
from ddp_repro.cli.composing import compose_more
from ddp_repro.config import BisectConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.run.driver import Invocation
from ddp_repro.suspects import Suspects, not_taken, suspects_of

COMMAND = Command(name="bisect", schema=BisectConfig, run=lambda _config, _invocation: ExitCode.NOT_JUDGED)
ALL_ON = (
    "determinism=prod", "determinism.float32_matmul_precision=high", "train.compile=true", "train.precision=bf16",
    "train.grad_scaler=true", "train.optimizer=foreach", "train.accumulate=2", "data.num_workers=2",
    "data.persistent_workers=true", "ddp.hook=fp16_compress", "ddp.bucket_cap_mb=1", "threads=2",
    "launcher.env.NCCL_ALGO=Ring",
)  # fmt: skip
NO_GPU = "does nothing here: there is no GPU"
pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("_arguments_kept", "_without_gpu"),
]  # each composes dozens of configurations


@pytest.fixture
def _arguments_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bisect"])  # Hydra is called by what stands there


@pytest.fixture
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_repro.suspects._has_gpu", lambda: False)


def suspects(*typed: str) -> Suspects:
    compose = partial(compose_more, COMMAND, typed)
    return suspects_of(compose(()), Invocation(command="bisect", overrides=typed, compose=compose))


def script(folder: Path, *typed: str) -> Suspects:
    (folder / "train.py").write_text("")
    return suspects("workload=script", f"workload.path={folder / 'train.py'}", *typed)


def names(found: Suspects) -> list[str]:
    return [one.name for one in found.ones]


def test_all_that_is_on_is_a_suspect_and_is_off_where_it_is_switched_off() -> None:
    found = suspects(*ALL_ON)
    assert names(found) == [
        "env.NCCL_ALGO", "compile", "precision", "tf32", "algorithms", "optimizer", "accumulation",
        "persistent_workers", "workers", "hook", "bucket", "threads", "distributed",
    ]  # fmt: skip
    assert found.left_out == {
        "cudnn_benchmark": NO_GPU,
        "hash_seed": "off already",
        "seeds": "off already",
    }
    off = found.with_off(frozenset(names(found)))
    assert (off.train.compile, off.train.precision.value, off.train.grad_scaler) == (False, "fp32", False)
    assert (off.train.accumulate, off.data.num_workers, off.data.persistent_workers) == (1, 0, False)
    assert off.train.optimizer is not None
    assert off.train.optimizer.value == "plain"
    assert (off.ddp.hook, off.ddp.bucket_cap_mb, off.threads, off.nproc) == (None, None, 1, 1)
    assert off.launcher.env == {}
    assert off.determinism.deterministic_algorithms is not None
    assert off.determinism.deterministic_algorithms.value == "warn"
    assert off.determinism.float32_matmul_precision is not None
    assert off.determinism.float32_matmul_precision.value == "highest"


def test_one_that_is_switched_off_leaves_the_others_on() -> None:
    found = suspects(*ALL_ON)
    before = found.config
    for one, moved in {"workers": "data", "hook": "ddp", "threads": "threads", "algorithms": "determinism"}.items():
        off = found.with_off(frozenset({one}))
        groups = ("train", "data", "ddp", "threads", "determinism", "nproc", "launcher", "workload")
        assert [group for group in groups if getattr(off, group) != getattr(before, group)] == [moved]


def test_what_is_off_already_or_does_nothing_on_a_cpu_is_left_out() -> None:
    found = suspects()
    assert names(found) == ["distributed"]
    assert {name for name, why in found.left_out.items() if why == "off already"} == {
        "compile", "precision", "tf32", "algorithms", "optimizer", "accumulation", "persistent_workers", "workers",
        "hash_seed", "seeds", "hook", "bucket", "threads",
    }  # fmt: skip
    assert found.left_out["cudnn_benchmark"] == NO_GPU
    found = suspects("determinism=prod", "nproc=1")
    assert names(found) == ["algorithms"]
    assert (found.left_out["tf32"], found.left_out["cudnn_benchmark"]) == (NO_GPU, NO_GPU)
    assert found.left_out["distributed"] == "off already"


def test_with_a_gpu_its_switches_are_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_repro.suspects._has_gpu", lambda: True)
    found = suspects("determinism=prod")
    assert names(found) == ["tf32", "cudnn_benchmark", "algorithms", "optimizer", "distributed"]
    off = found.with_off(frozenset(names(found))).determinism
    assert (off.cudnn_tf32, off.cudnn_benchmark, off.cudnn_deterministic) == (False, False, True)
    assert off.cublas_workspace == ":4096:8"


def test_a_script_has_what_can_be_switched_off_from_outside_and_what_is_named(tmp_path: Path) -> None:
    named = ("bisect.factors.workers.args='--workers 0'", "bisect.factors.fast.drop='--fast 3'")
    found = script(tmp_path, "workload.args='--fast 3 --workers 4 --fast 5'", *named)
    assert names(found) == ["workers", "fast", "algorithms", "hash_seed", "seeds", "distributed"]
    assert found.left_out["tf32"] == NO_GPU
    assert found.left_out["compile"].startswith("the script's own, if it has it")
    assert found.left_out["threads"] == "off already"
    assert found.overrides(frozenset({"workers"})) == ('workload.args="--fast 3 --workers 4 --fast 5 --workers 0"',)
    assert found.overrides(frozenset({"workers", "fast"})) == ('workload.args="--workers 4 --fast 5 --workers 0"',)
    off = found.with_off(frozenset(names(found)))
    assert (off.nproc, off.seeding.value, off.determinism.hash_seed) == (1, "inject", 0)
    assert script(tmp_path, *named).left_out["fast"] == "the script is not given --fast 3"
    assert script(tmp_path, "workload.args='--workers 0'", *named).left_out["workers"] == "off already"


def test_what_a_script_sets_itself_is_told_by_what_its_rank_read_back(tmp_path: Path) -> None:
    found = script(tmp_path, "threads=2")
    config = found.with_off(frozenset({"algorithms", "threads"}))
    identity = {
        "experiment": {"determinism_in_force": {"deterministic_algorithms": "off"}},
        "environment": {"threads": 4},
    }
    assert not_taken(found, config, identity) == {
        "algorithms": "the script sets it itself: deterministic_algorithms was off",
        "threads": "the script sets it itself: it ran with 4 threads",
    }
    as_set = {
        "experiment": {"determinism_in_force": {"deterministic_algorithms": "warn"}},
        "environment": {"threads": 1},
    }
    assert not_taken(found, config, as_set) == {}


def test_skipped_ones_and_ones_that_are_none() -> None:
    found = suspects("threads=2", "launcher.env.A=1", "bisect.skip=[threads,env.A]")
    assert names(found) == ["distributed"]
    assert (found.left_out["threads"], found.left_out["env.A"]) == ("bisect.skip names it", "bisect.skip names it")
    with pytest.raises(ReproError, match="is no suspect") as refused:
        suspects("bisect.factors.mine.arg=x")
    assert "Its keys are overrides, args, drop, cost" in refused.value.hint
