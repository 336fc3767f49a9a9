"""Every planted fault is caught and placed, and its clean twin passes, through the product as a user runs it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command import call, environment

pytestmark = pytest.mark.worlds

HERE = Path(__file__).parent
ROWS: list[dict[str, Any]] = yaml.safe_load((HERE / "expected.yaml").read_text())
EXIT_CODES = {"REPRODUCIBLE": 0, "DIVERGED": 1, "NOT_JUDGED": 2}
RANKS = 3  # two hide faults of reduction order


@dataclass(frozen=True)
class Outcome:
    code: int
    verdict: dict[str, Any]
    stdout: str
    stderr: str


def check(workload: str, overrides: list[str], folder: Path) -> Outcome:
    target = f"workload._target_=planted.workloads.{workload}"
    words = ["check", target, f"nproc={RANKS}", f"output.dir={folder}", *overrides]
    done = call(words, cwd=folder.parent, environ=environment())
    assert (folder / "verdict.json").is_file(), done.stdout + done.stderr
    verdict = json.loads((folder / "verdict.json").read_text())
    return Outcome(done.returncode, verdict, done.stdout, done.stderr)


@pytest.mark.parametrize("row", ROWS, ids=[row["workload"] for row in ROWS])
def test_a_planted_fault_is_caught_and_placed(row: dict[str, Any], tmp_path: Path) -> None:
    outcome = check(row["workload"], row["overrides"], tmp_path / "run")
    assert outcome.verdict["verdict"] == row["verdict"], outcome.stdout
    assert outcome.code == EXIT_CODES[row["verdict"]]
    assert outcome.stdout.splitlines()[-1] == row["verdict"]
    finding = outcome.verdict["findings"][0]
    assert {key: finding[key] for key in row["finding"]} == row["finding"]


TWINS = sorted({(row["twin"], tuple(row["overrides"])) for row in ROWS if row["twin"] != "clean"})


@pytest.mark.parametrize(("workload", "overrides"), [*TWINS, ("clean", ("data.num_workers=2",))])
def test_a_clean_twin_passes(workload: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    outcome = check(workload, list(overrides), tmp_path / "run")
    assert outcome.verdict["verdict"] == "REPRODUCIBLE", outcome.stdout
    assert outcome.verdict["findings"] == []
    assert outcome.code == 0


def test_steps_that_cannot_be_observed_are_not_judged(tmp_path: Path) -> None:
    outcome = check("unobserved_optimizer", ["train.max_steps=3"], tmp_path / "run")
    assert outcome.verdict["verdict"] == "NOT_JUDGED", outcome.stdout
    assert "returned _Duck; return a torch.optim.Optimizer" in " ".join(outcome.verdict["problems"])
    assert outcome.code == 2
