"""Planted operators that are not deterministic: each is named by a second look, with its module and its line."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from ddp_repro.workload import text
from tests.command import call, environment
from tests.faults.planted import operators

pytestmark = pytest.mark.worlds

RANKS = 3
HERE = Path(operators.__file__)


def line(mark: str) -> str:
    """Return the source of the line with this mark."""
    lines = HERE.read_text().splitlines()
    return f"planted/operators.py:{next(number for number, text in enumerate(lines, 1) if text.endswith(mark))}"


def check(workload: str, folder: Path, *overrides: str) -> dict[str, Any]:
    target = f"workload._target_=planted.operators.{workload}"
    words = ["check", target, f"nproc={RANKS}", f"output.dir={folder}", "train.max_steps=3", *overrides]
    if not any(override.startswith("second_look=") for override in overrides):
        words.append("second_look=true")  # as it is by default: tests leave it out elsewhere
    done = call(words, cwd=folder.parent, environ=environment())
    assert (folder / "verdict.json").is_file(), done.stdout + done.stderr
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    assert done.stdout.splitlines()[-1] == verdict["verdict"]
    if verdict["findings"] and verdict["findings"][0]["operator"]:
        assert verdict["findings"][0]["operator"] in done.stdout.replace("\n           ", " ")
    return verdict


FORWARD, BACKWARD = "# line of the forward", "# line of the backward's forward"
PLANTED = {
    "noisy_forward": ("forward-operator", "loss", "planted::noisy", FORWARD, " of shared,"),
    "noisy_second_call": ("forward-operator", "loss", "planted::noisy", FORWARD, " of shared(2),"),
    "noisy_backward": (
        "backward-operator",
        "grad_local",
        "planted::noisy",
        BACKWARD,
        "backward of _NoisyBackward",
    ),
    "noisy_optimizer": ("optimizer", "param", "planted::noisy", "# line of the optimizer", "float32"),
    "reduction_in_any_order": (
        "reduction-order",
        "grad_reduced",
        "aten::add.Tensor",
        "# line of the reduction",
        "comes",
    ),
}


IN_THE_SUITE = ("noisy_forward", "noisy_backward")


@pytest.mark.parametrize(
    "workload", [pytest.param(one, marks=[] if one in IN_THE_SUITE else [pytest.mark.full]) for one in PLANTED]
)
def test_a_planted_operator_is_named(workload: str, tmp_path: Path) -> None:
    verdict = check(workload, tmp_path / "run")
    assert verdict["verdict"] == "DIVERGED"
    found = verdict["findings"][0]
    cause, phase, operator, mark, words = PLANTED[workload]
    assert (found["cause"], found["phase"], found["operator"]) == (cause, phase, operator), found["message"]
    assert found["source"] == line(mark), found["message"]
    assert words in found["message"]
    if workload != "reduction_in_any_order":  # there the inputs differ: only the order of the same ones
        assert "is the first whose inputs are equal in bits and whose output differs" in found["message"]
    assert (found["distance"] is None) == (workload == "reduction_in_any_order")


@pytest.mark.full
@pytest.mark.parametrize("workload", ["noisy_elsewhere", "noisy_thread"])
def test_what_no_mode_sees_is_said_and_narrowed_to_the_module(workload: str, tmp_path: Path) -> None:
    found = check(workload, tmp_path / "run", "determinism=debug")["findings"][0]
    assert (found["cause"], found["phase"], found["operator"]) == ("forward-operator", "loss", None)
    assert "no operator that was observed differs before it" in found["message"]
    assert "the first module whose output differs is outside" in found["message"]
    assert "deterministic algorithms were on, so look for what they do not reach: Python threads" in found["advice"]
    assert "determinism=debug" not in found["advice"]


@pytest.mark.full
def test_between_twins_the_operator_is_named_that_what_they_override_moves(tmp_path: Path) -> None:
    twins = 'twins=[["ddp.bucket_cap_mb=25"],["workload._target_=planted.operators.noisy_forward"]]'
    found = check("clean", tmp_path / "run", twins)["findings"][0]
    assert (found["witness"], found["cause"], found["operator"]) == ("twins", "forward-operator", "planted::noisy")
    assert found["source"] == line(FORWARD)
    assert "no setting of torch's" not in found["advice"]


def test_the_tensors_that_differ_stay_and_the_distance_is_theirs(tmp_path: Path) -> None:
    verdict = check("noisy_forward", tmp_path / "run")
    distance = verdict["findings"][0]["distance"]
    kept = sorted(tmp_path.glob("run/second-look-0/launch-*/*.safetensors"))
    assert len(kept) == 2
    a, b = (next(iter(value for name, value in safetensors.torch.load_file(file).items() if ".out" in name))
            for file in kept)  # fmt: skip
    assert distance["of"] == a.numel()
    assert distance["elements"] == int((a != b).sum())
    assert distance["max_abs"] == pytest.approx(float((a.double() - b.double()).abs().max()))
    first = distance["first"][0]
    assert float(first["values"][0]) == pytest.approx(float(a[tuple(first["index"])]))


@pytest.mark.parametrize("workload", ["clean", pytest.param("reduction_in_order", marks=pytest.mark.full)])
def test_a_clean_twin_passes_without_a_second_look(workload: str, tmp_path: Path) -> None:
    assert check(workload, tmp_path / "run")["verdict"] == "REPRODUCIBLE"
    assert not list(tmp_path.glob("run/second-look-*"))


@pytest.mark.full
def test_what_does_not_return_is_told_with_its_rate(tmp_path: Path) -> None:
    verdict = check("rare", tmp_path / "run", "launches=5")
    found = verdict["findings"][0]
    assert (found["cause"], found["phase"], found["step"]) == ("forward-operator", "loss", 1)
    assert "launch 4 is alone" in found["message"]
    assert "seen in 1 of 5 launches, and a second look (4 launches) did not show it again" in found["message"]
    assert found["operator"] is None
    assert not list(tmp_path.glob("run/second-look-*/launch-*/*.safetensors"))


@pytest.mark.full
def test_what_shows_in_one_launch_of_five_at_certain_data_is_placed_and_told_with_its_rate(tmp_path: Path) -> None:
    verdict = check("rare_in_data", tmp_path / "run", "launches=5", "train.max_steps=40", "train.epochs=20")
    step = int((tmp_path / "run/launch-4/rank-1.log").read_text().partition("rare at step ")[2].split()[0])
    found = verdict["findings"][0]
    assert verdict["verdict"] == "DIVERGED"
    assert verdict["classes"] == [[0, 1, 2, 3], [4]]
    assert (found["cause"], found["step"], found["ranks"]) == ("forward-operator", step, [1])
    assert (found["phase"], found["name"]) == ("loss", "loss")
    assert "launch 4 is alone" in found["message"]
    assert "seen in 1 of 5 launches, and a second look (4 launches) did not show it again" in found["message"]


def test_no_second_look_where_none_is_wanted(tmp_path: Path) -> None:
    verdict = check("noisy_forward", tmp_path / "run", "second_look=false")
    assert verdict["findings"][0]["operator"] is None
    assert not list(tmp_path.glob("run/second-look-*"))


def test_the_look_up_in_the_text_workload_is_named(tmp_path: Path) -> None:
    options = ("workload.size=tiny", "train.max_steps=5")
    asked = ["second_look=true", "determinism=prod", f"nproc={RANKS}", f"output.dir={tmp_path / 'run'}", *options]
    words = ["check", "workload=text", *asked]
    done = call(words, cwd=tmp_path, environ=environment())
    found = json.loads((tmp_path / "run" / "verdict.json").read_text())["findings"][0]
    assert (found["cause"], found["name"]) == ("backward-operator", "blocks.0.attention.table"), done.stdout
    lines = Path(text.__file__).read_text().splitlines()
    look_up = next(number for number, line in enumerate(lines, 1) if "self.table[index]" in line)
    assert found["operator"].startswith("aten::index_put"), found["message"]
    assert found["source"] == f"ddp_repro/workload/text.py:{look_up}"
    assert "in the backward of IndexBackward" in found["message"]
    assert "float32[64,8], int64[128,128], float32[128,128,8] -> float32[64,8]" in found["message"]
    assert found["distance"]["max_ulp"] > 0
    assert "index_put with accumulate=True when called on a CPU tensor: will act deterministically" in found["advice"]
