"""Launches that are ended soon after their first difference, through the product as a user runs it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command import call, environment, run
from tests.faults.planted.operators import LATE_STEP

pytestmark = pytest.mark.worlds

RANKS, STEPS = 3, 200
LONG = (f"train.max_steps={STEPS}", "train.epochs=100")


@dataclass(frozen=True, kw_only=True)
class Checked:
    verdict: dict[str, Any]
    stdout: str
    records: list[dict[str, Any]]

    @property
    def outcomes(self) -> list[str]:
        return [record["outcome"] for record in self.records]

    @property
    def place(self) -> tuple[Any, ...]:
        found = self.verdict["findings"][0]
        return tuple(found[key] for key in ("witness", "cause", "launches", "step", "ranks", "phase", "name"))


def check(folder: Path, workload: str, *overrides: str) -> Checked:
    target = f"workload._target_=planted.operators.{workload}"
    words = ["check", target, f"nproc={RANKS}", f"output.dir={folder}", *overrides]
    done = call(words, cwd=folder.parent, environ=environment())
    assert (folder / "verdict.json").is_file(), done.stdout + done.stderr
    verdict = json.loads((folder / "verdict.json").read_text())
    assert done.stdout.splitlines()[-1] == verdict["verdict"]
    records = [json.loads(file.read_text()) for file in sorted(folder.glob("launch-*/launch.json"))]
    return Checked(verdict=verdict, stdout=done.stdout, records=records)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """A check of two launches of 200 steps, as it is by default: the second one differs from step 55 on."""
    return check(tmp_path_factory.mktemp("ended") / "run", "late", *LONG)


def test_a_launch_is_ended_soon_after_its_first_difference(ended: Checked) -> None:
    assert ended.verdict["verdict"] == "DIVERGED", ended.stdout
    assert ended.verdict["classes"] == [[0], [1]]
    assert ended.place == ("launches", "forward-operator", [0, 1], LATE_STEP, [1], "loss", "loss")
    assert ended.outcomes == ["finished", "parted"]
    assert [record["ranks"][0]["last_step"] < STEPS for record in ended.records] == [False, True]
    assert [end["exit_code"] for end in ended.records[1]["ranks"]] == [-9] * RANKS


def test_what_ended_it_is_told(ended: Checked) -> None:
    (told,) = ended.verdict["ended_early"]
    assert {key: told[key] for key in ("launch", "step", "ranks", "phase", "name")} == {
        "launch": 1, "step": LATE_STEP, "ranks": [1], "phase": "loss", "name": "loss",
    }  # fmt: skip
    assert LATE_STEP < told["at"] < STEPS
    note = f"launch 1 was ended at step {told['at']}, soon after its first difference at step {LATE_STEP}: fail_fast"
    assert note in ended.verdict["notes"]
    assert f"launch 1 ended at step {told['at']}: fail_fast" in ended.stdout.replace("\n           ", " ")
    assert ended.verdict["chance"] is None


def test_an_equal_launch_runs_to_its_end(tmp_path: Path) -> None:
    clean = check(tmp_path / "run", "never_late", "fail_fast=true", "train.max_steps=70", "train.epochs=100")
    assert clean.verdict["verdict"] == "REPRODUCIBLE", clean.stdout
    assert clean.outcomes == ["finished", "finished"]
    assert clean.verdict["ended_early"] == []
    assert clean.verdict["chance"] == {"launches": 2, "rate": 0.5, "missed": 0.5}
    assert "2 equal launches miss a divergence in 50 % of launches" in clean.stdout.replace("\n           ", " ")


@pytest.mark.full
def test_without_it_the_first_finding_is_the_same(ended: Checked, tmp_path: Path) -> None:
    whole = check(tmp_path / "run", "late", "fail_fast=false", *LONG)
    assert whole.outcomes == ["finished", "finished"]
    assert (whole.verdict["verdict"], whole.place) == (ended.verdict["verdict"], ended.place)
    assert whole.verdict["classes"] == ended.verdict["classes"]


@pytest.mark.full
def test_of_three_launches_two_that_were_ended_are_alike_as_far_as_they_went(tmp_path: Path) -> None:
    found = check(tmp_path / "run", "late", "launches=3", "second_look=true", *LONG)
    assert found.outcomes == ["finished", "parted", "parted"]
    assert found.verdict["classes"] == [[0], [1, 2]]
    first = found.verdict["findings"][0]
    assert first["message"].startswith("launch 0 is alone (launches 1 and 2 are equal as far as they went)")
    assert any("what came later is not known of launches 1 and 2" in note for note in found.verdict["notes"])
    assert first["operator"] == "aten::mul.Tensor", first["message"]


@pytest.mark.full
def test_a_short_one_is_ended_only_where_that_is_asked_for(tmp_path: Path) -> None:
    short = ("train.max_steps=6", "train.epochs=100")
    assert check(tmp_path / "default", "noisy_forward", *short).outcomes == ["finished", "finished"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("workload", "verdict", "outcomes"),
    [("never_late", "REPRODUCIBLE", ["finished", "finished"]), ("late", "DIVERGED", ["finished", "parted"])],
)
def test_twins_are_ended_only_by_what_they_must_have_in_common(
    workload: str, verdict: str, outcomes: list[str], tmp_path: Path
) -> None:
    """Workers have states of their own, which two variants need not share."""
    twins = 'twins=[["data.num_workers=0"],["data.num_workers=2"]]'
    found = check(tmp_path / "run", workload, twins, "fail_fast=true", *LONG)
    assert (found.verdict["verdict"], found.outcomes) == (verdict, outcomes), found.stdout
    if workload == "late":
        assert found.place[2:] == ([0, 1], LATE_STEP, [1], "loss", "loss")


def test_a_key_that_would_do_nothing_is_refused(tmp_path: Path) -> None:
    done = run("check", "fail_fast=true", "capture=off", "nproc=2", cwd=tmp_path)
    done.assert_short_refusal()
    assert "fail_fast=true would do nothing" in done.stderr
