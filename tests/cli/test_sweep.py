"""``-m``: several runs of one command, in folders of their own, and a table of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import TINY, run

TARGETS = "workload._target_=planted.workloads.clean,planted.workloads.unseeded_library"


def summary(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return document


@pytest.mark.worlds
def test_each_combination_is_checked_and_the_worst_decides(tmp_path: Path) -> None:
    done = run("check", TARGETS, "-m", "nproc=0,1", "train.max_steps=2", "second_look=false", cwd=tmp_path)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr

    document = summary(tmp_path / "runs/0")
    verdicts = [entry["verdict"] for entry in document["runs"]]
    assert verdicts == ["NOT_JUDGED", "REPRODUCIBLE", "NOT_JUDGED", "DIVERGED"]
    folders = [entry["folder"] for entry in document["runs"]]
    assert folders == [f"runs/0/{number}" for number in range(4)]
    one = json.loads((tmp_path / folders[3] / "verdict.json").read_text())
    assert "-m " not in one["command"].partition("ddp_repro.check")[2]  # repeats this run alone
    assert "nproc=1" in one["command"]
    assert "nproc=0 is not possible" in (tmp_path / "runs/0/summary.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]  # nothing of Hydra's


@pytest.mark.full
@pytest.mark.worlds
def test_what_is_recorded_has_no_verdict(tmp_path: Path) -> None:
    done = run("record", "-m", *TINY, "nproc=2", "seed=1,2", "output.dir=mine", cwd=tmp_path)
    assert done.code == 0, done.stdout + done.stderr
    assert [entry["verdict"] for entry in summary(tmp_path / "mine")["runs"]] == [None, None]
    assert (tmp_path / "mine/1/launch-0/rank-1.arrows").is_file()
    assert "2 runs: 2 recorded" in done.stdout
    again = run("record", "-m", *TINY, "nproc=2", "seed=1,2", "output.dir=mine", cwd=tmp_path)
    again.assert_short_refusal()
    assert "already holds a sweep" in again.stderr


SCRIPT = Path(__file__).parents[1] / "scripts"
SUSPECTS = ("nproc=2", "workload=script", f"workload.path={SCRIPT / 'suspects.py'}", "launches=2")
MEASURED = ("nproc=1", "workload=script", f"workload.path={SCRIPT / 'measured.py'}")


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize(
    ("command", "words", "code", "verdicts"),
    [
        (
            "bisect",
            [
                *SUSPECTS, "bisect.skip=[hash_seed,seeds,distributed]", "bisect.factors.hook.drop=--hook",
                'workload.args="--hook --planted hook","--hook --planted workers"', "bisect.first=2",
            ],
            1,
            ["DIVERGED", "REPRODUCIBLE"],
        ),
        (
            "survey",
            [
                "nproc=2", "workload=script", f"workload.path={SCRIPT / 'offenders.py'}", "survey.accept=aten::*",
                'workload.args="","--clean"',
            ],
            1,
            ["DIVERGED", "REPRODUCIBLE"],
        ),
        (
            "spread",
            [
                *MEASURED, 'workload.args="--seed {seed}"', "spread.repeats=1", "seeds=[1,2],[3,4]",
                'metric.regex="val_loss=(.*)","accuracy=(.*)"',
            ],
            2,
            ["MEASURED", "NOT_JUDGED", "MEASURED", "NOT_JUDGED"],
        ),
        (
            "cost",
            [
                *MEASURED, 'workload.args="--steps 1000"', "cost.repeats=2", "cost.warmup=1", "cost.steps=5,10",
                "cost.switches=false",
            ],
            0,
            ["MEASURED", "MEASURED"],
        ),
    ],
)  # fmt: skip
def test_searches_and_measurements_are_swept(
    command: str, words: list[str], code: int, verdicts: list[str], tmp_path: Path
) -> None:
    done = run(command, "-m", *words, "output.dir=mine", cwd=tmp_path)
    assert done.code == code, done.stdout + done.stderr
    document = summary(tmp_path / "mine")
    assert sorted(entry["verdict"] for entry in document["runs"]) == sorted(verdicts)
    assert document["exit_code"] == code
    for number, entry in enumerate(document["runs"]):
        own = json.loads((tmp_path / f"mine/{number}/verdict.json").read_text())
        assert (own["verdict"], own["exit_code"]) == (entry["verdict"], entry["exit_code"])
        assert entry["first"] in ("", own["sentence"], *own["problems"][:1])
        assert (tmp_path / f"mine/{number}/report.html").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_runs_that_name_their_folders_keep_them(tmp_path: Path) -> None:
    run("check", "-m", "nproc=0", "output.dir=a,b", cwd=tmp_path)
    assert [entry["folder"] for entry in summary(tmp_path / "runs/0")["runs"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-m", "seed=1,2", "nope=3"], "Key 'nope' not in 'CheckConfig'"),
        (["-m", "seed=1,2", "+nope=3"], "nope is no key of check"),
        (["-m", "--cfg", "job"], "Only one of"),
        (["-m", "seed=1,2", 'twins=[["seed=1"]]'], "twins and -m cannot be combined"),
        (["seed=1", "hydra/launcher=submitit_slurm"], "does nothing without -m"),
        (["-m", "hydra/launcher=nowhere"], "Could not find 'hydra/launcher/nowhere'"),
        (["-m", "hydra/launcher=submitit_slurm", "hydra.launcher.nodes=2"], "one driver on one node"),
    ],
)
def test_a_mistake_gets_a_short_answer(tmp_path: Path, words: list[str], told: str) -> None:
    done = run("check", *words, cwd=tmp_path)
    done.assert_short_refusal()
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []  # and leaves nothing
