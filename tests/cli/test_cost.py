"""What determinism costs, measured in turns: what a person sees of `cost`."""

import json
from pathlib import Path

import pytest

from tests.command import run

pytestmark = pytest.mark.worlds

SCRIPT = Path(__file__).parents[1] / "scripts" / "measured.py"
QUICK = ("nproc=2", "workload.size=tiny", "cost.repeats=2", "cost.steps=10", "cost.warmup=2", "output.dir=run")


def test_a_profile_against_itself_in_turns(tmp_path: Path) -> None:
    done = run("cost", *QUICK, "cost.against=prod", cwd=tmp_path)
    assert (done.code, done.last_line) == (0, "MEASURED"), done.stdout + done.stderr
    verdict = done.verdict
    assert verdict is not None
    assert verdict["schema"] == "cost/1"
    assert [one["arm"] for one in verdict["launches"]] == ["prod", "prod again", "prod again", "prod"]
    assert {one["steps"] for one in verdict["launches"]} == {10}
    ratio = verdict["arms"][1]["ratio"]
    assert 0.2 < ratio["within"]["low"] <= ratio["ratio"] <= ratio["within"]["high"] < 5
    assert all(one["rss_bytes"] > 50 << 20 for one in verdict["launches"])
    assert {"few-launches", "few-steps"} <= {one["cause"] for one in verdict["findings"]}
    timing = json.loads((tmp_path / "run" / "launch-1" / "rank-1.timing.json").read_text())
    assert (timing["clock"], len(timing["intervals_ns"])) == ("host", 11)
    assert (tmp_path / "run" / "report.html").read_text().count("<svg") == 3
    again = run("report", "run=run", cwd=tmp_path)
    assert again.code == 0, again.stderr


@pytest.mark.full
def test_every_switch_of_a_script_alone(tmp_path: Path) -> None:
    script = ["workload=script", f"workload.path={SCRIPT}", 'workload.args="--steps 1000"', "nproc=1"]
    done = run("cost", *script, "cost.repeats=2", "output.dir=run", cwd=tmp_path)
    assert (done.code, done.last_line) == (0, "MEASURED"), done.stdout + done.stderr
    assert done.verdict is not None
    arms = [one["arm"] for one in done.verdict["arms"]]
    assert arms[:3] == ["leave", "debug", "deterministic_algorithms"]
    assert [one["arm"] for one in done.verdict["launches"]] == [*arms, *reversed(arms)]
    assert {one["steps"] for one in done.verdict["launches"]} == {50}
    asked = json.loads((tmp_path / "run" / "run.json").read_text())["variants"]
    assert asked[2]["overrides"] == [
        "determinism.deterministic_algorithms=error",
        "determinism.fill_uninitialized_memory=False",
    ]


@pytest.mark.parametrize(
    ("steps", "how", "told"),
    [(8, "well", "launch 0 took 8 steps"), (30, "fail --seed 2", "launch 0 (leave) failed: rank 0")],
)
def test_what_cannot_be_timed_is_told_as_soon_as_it_shows(tmp_path: Path, steps: int, how: str, told: str) -> None:
    args = f'workload.args="--steps {steps} --how {how}"'
    script = ["workload=script", f"workload.path={SCRIPT}", args, "nproc=1", "output.dir=run"]
    done = run("cost", *script, "cost.switches=false", cwd=tmp_path)
    assert (done.code, done.last_line) == (2, "NOT_JUDGED"), done.stdout + done.stderr
    assert told in " ".join(done.stdout.split())
    assert len(list(tmp_path.glob("run/launch-*"))) == 1


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["cost.against=careful"], "no determinism profile careful"),
        (["capture=step"], "would be timed along"),
    ],
)
def test_a_mistake_is_told_before_anything_is_launched(tmp_path: Path, overrides: list[str], told: str) -> None:
    done = run("cost", "output.dir=run", *overrides, cwd=tmp_path)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("run/launch-*"))
