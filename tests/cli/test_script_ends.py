"""A script with and without observing: it ends in the same bits, unless it behaves differently when observed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.layout import RunFolder
from tests.command import Done, run

pytestmark = pytest.mark.worlds

SCRIPT = f"workload.path={Path(__file__).parents[1] / 'scripts' / 'trainers.py'}"
TWINS = 'twins=[["capture=step"],["capture=off"]]'
LAYERS = {f"{layer}.{kind}" for layer in (0, 1, 2) for kind in ("weight", "bias")}
BUFFERS = {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
NAMES = {
    "plain": (LAYERS, BUFFERS),
    "zero": (LAYERS, BUFFERS),
    "hook": (LAYERS, BUFFERS),
    "alone": (LAYERS, BUFFERS),
    "teacher": (LAYERS, BUFFERS),
    "fsdp": ({name for name in LAYERS if not name.startswith("1")}, set()),
    "gan": ({"weight", "bias", "model1.weight", "model1.bias"}, set()),
    "folds": tuple(
        {f"{model}{name}" for model in ("", "model1.", "model2.") for name in of} for of in (LAYERS, BUFFERS)
    ),
}


def checked(case: str, tmp_path: Path) -> Done:
    return run(
        "check", "workload=script", SCRIPT, f"workload.args={case}", "nproc=3", "output.dir=run", TWINS, cwd=tmp_path
    )


def ends(tmp_path: Path, launch: int) -> list[dict[str, Any]]:
    folder = RunFolder(tmp_path / "run").launch(launch)
    return [json.loads(folder.final(rank).read_text()) for rank in range(3)]


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[] if place < 3 else [pytest.mark.full]) for place, one in enumerate(NAMES)]
)
def test_a_trainer_ends_alike_with_and_without_observing(case: str, tmp_path: Path) -> None:
    done = checked(case, tmp_path)
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    watched, bare = ends(tmp_path, 0), ends(tmp_path, 1)
    assert watched == bare
    for final in watched:
        assert (set(final["param"]), set(final["buffer"])) == NAMES[case]
    assert (watched[0]["param"] == watched[1]["param"]) is (case != "fsdp"), "replicas end alike, shards do not"


def test_a_script_that_behaves_differently_when_observed_is_found(tmp_path: Path) -> None:
    done = checked("looks", tmp_path)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert done.verdict is not None
    found = done.verdict["findings"][0]
    assert (found["witness"], found["cause"], found["ranks"]) == ("twins", "other-end", [0, 1, 2])
    assert found["phase"] == "param"
    assert {"0.weight", "2.weight", "2.bias"} <= set(found["names"]) <= LAYERS
    assert "capture=off" in found["message"]
