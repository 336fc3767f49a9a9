"""What bisect switches off in the built-in training is off, what it leaves on is on: as the training itself finds."""

from pathlib import Path
from typing import Any

import pytest

from tests.command import Done, run

pytestmark = [pytest.mark.worlds, pytest.mark.full, pytest.mark.timeout(900)]

ON: dict[str, tuple[str, ...]] = {
    "compile": ("train.compile=true",),
    "precision": ("train.precision=bf16",),
    "tf32": ("determinism.float32_matmul_precision=high",),
    "algorithms": ("determinism=prod",),
    "optimizer": ("train.optimizer=fused",),
    "accumulation": ("train.accumulate=2",),
    "persistent_workers": ("data.num_workers=1", "data.persistent_workers=true"),
    "workers": ("data.num_workers=1",),
    "hook": ("ddp.hook=fp16_compress",),
    "bucket": ("ddp.bucket_cap_mb=1",),
    "threads": ("threads=2",),
    "distributed": (),
    "env.FAST": ("launcher.env.FAST=1",),
}
"""Of each suspect that does something on a CPU: what switches it on in the built-in training."""
ORDER = ["env.FAST", *(name for name in ON if name != "env.FAST")]


def bisect(folder: Path, planted: str, *overrides: str) -> Done:
    workload = ("workload._target_=planted.suspects.noisy", f"workload.planted=[{planted}]")
    return run("bisect", *workload, *overrides, "nproc=2", "launches=2", "output.dir=out", cwd=folder, timeout_s=880)


def switched_on(*names: str) -> list[str]:
    return list(dict.fromkeys(override for name in names for override in ON[name]))


def verdict_of(done: Done) -> dict[str, Any]:
    assert done.verdict is not None, done.stdout + done.stderr
    return done.verdict


@pytest.mark.parametrize("name", list(ON))
def test_each_culprit_of_the_built_in_training_is_found(name: str, tmp_path: Path) -> None:
    decoys = [decoy for decoy in ("optimizer", "hook", "bucket") if decoy != name]
    done = bisect(tmp_path, name, *switched_on(name, *decoys))
    verdict = verdict_of(done)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert [one["name"] for one in verdict["culprits"]] == [name]
    searched = verdict["outcomes"][1]["off"]
    assert {name, *decoys} <= set(searched)
    assert set(searched).isdisjoint(verdict["left_out"])
    assert verdict["findings"][0]["phase"] == "loss"


def test_two_that_act_together_in_the_built_in_training(tmp_path: Path) -> None:
    done = bisect(tmp_path, "workers,bucket", *switched_on("workers", "bucket", "optimizer", "threads"))
    verdict = verdict_of(done)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert [(one["name"], one["together"]) for one in verdict["culprits"]] == [("workers", ["bucket"])]


def test_with_everything_on_and_nothing_planted_there_is_nothing_to_bisect(tmp_path: Path) -> None:
    done = bisect(tmp_path, "", *switched_on(*ON), "bisect.first=2")
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    assert verdict_of(done)["left_out"].keys() == {"cudnn_benchmark", "hash_seed", "seeds"}


def test_where_no_suspect_is_the_reason_it_says_so(tmp_path: Path) -> None:
    done = bisect(tmp_path, "threads", *switched_on("threads", "bucket"), "bisect.skip=[threads,distributed]")
    assert (done.code, done.last_line) == (2, "NOT_JUDGED"), done.stdout + done.stderr
    assert "none of them is the reason" in verdict_of(done)["sentence"]
