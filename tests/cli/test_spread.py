"""Seeds of a script and of a built-in workload, a candidate and a baseline: what a person sees of `spread`."""

import json
from pathlib import Path

import pytest

from tests.command import Done, run

pytestmark = pytest.mark.worlds

SCRIPT = Path(__file__).parents[1] / "scripts" / "measured.py"
REGEX = 'metric.regex="val_loss=(.*)"'


def spread(cwd: Path, *overrides: str, args: str = "--seed {seed}", out: str = "run") -> Done:
    shared = ["workload=script", f"workload.path={SCRIPT}", f'workload.args="{args}"', "nproc=1", f"output.dir={out}"]
    return run("spread", *shared, *overrides, cwd=cwd)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a spread of four seeds lies in `run`."""
    cwd = tmp_path_factory.mktemp("spread")
    done = spread(cwd, REGEX, "seeds=1,2,3,4")
    assert (done.code, done.last_line) == (0, "MEASURED"), done.stdout + done.stderr
    return cwd


def test_a_spread_is_told_kept_and_drawn(measured: Path) -> None:
    verdict = json.loads((measured / "run" / "verdict.json").read_text())
    assert (verdict["schema"], verdict["verdict"], verdict["exit_code"]) == ("spread/1", "MEASURED", 0)
    told = [(one["arm"], one["seed"]) for one in verdict["launches"]]
    assert told == [("A", 1), ("A", 2), ("A", 3), ("A", 4), ("A", 1)]
    assert verdict["seeds"]["n"] == 4
    assert verdict["same_seed"]["same_bits"]
    assert len({one["end"] for one in verdict["launches"]}) == 4
    values = {one["seed"]: one["value"] for one in verdict["launches"]}
    log = (measured / "run" / "launch-2" / "rank-0.log").read_text()
    assert f"val_loss={values[3]!r}" in log
    baseline = json.loads((measured / "run" / "baseline.json").read_text())
    assert baseline["values"] == [values[seed] for seed in (1, 2, 3, 4)]
    assert "seed" not in baseline["settings"]
    page = (measured / "run" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert verdict["notes"][0][:40] in page
    again = run("report", "run=run", cwd=measured)
    assert again.code == 0, again.stderr
    assert (measured / "run" / "report.html").read_text() == page


def test_a_later_run_is_held_to_it(measured: Path) -> None:
    held = ["spread.baseline=run", "spread.repeats=1", "seeds=[9]", REGEX]
    within = spread(measured, *held, out="within")
    assert (within.code, within.last_line) == (0, "WITHIN"), within.stdout + within.stderr
    changed = spread(measured, *held, args="--seed {seed} --scale 9", out="changed")
    changed.assert_short_refusal()
    assert "compare.allow=[workload.args]" in changed.stderr
    allowed = spread(measured, *held, "compare.allow=[workload.args]", args="--seed {seed} --scale 900", out="outside")
    assert (allowed.code, allowed.last_line) == (1, "OUTSIDE"), allowed.stdout
    assert "since the baseline: workload.args" in " ".join(allowed.stdout.split())


@pytest.mark.parametrize(
    ("how", "regex", "told", "launches"),
    [
        ("well", "accuracy=(.*)", "finds nothing in what rank 0 printed in launch 0 (seed 1)", 1),
        ("nan", "val_loss=(.*)", "the metric of launch 1 (seed 2) is nan", 2),
        ("fail", "val_loss=(.*)", "launch 1 (seed 2) failed: rank 0: the script ended with sys.exit(3)", 2),
        ("deaf", "val_loss=(.*)", "the seed does not reach the script", 2),
    ],
)
def test_what_cannot_be_measured_is_told_as_soon_as_it_shows(
    tmp_path: Path, how: str, regex: str, told: str, launches: int
) -> None:
    overrides = ["seeds=[1,2]", "spread.repeats=1", f'metric.regex="{regex}"']
    done = spread(tmp_path, *overrides, args=f"--seed {{seed}} --how {how}")
    assert (done.code, done.last_line) == (2, "NOT_JUDGED"), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert told in " ".join(done.stdout.split())
    assert done.verdict is not None
    assert done.verdict["problems"]
    assert len(list(tmp_path.glob("run/launch-*"))) == launches
    assert not (tmp_path / "run" / "baseline.json").exists()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["seeds=[1]"], "one seed shows no spread"),
        (["seeds=[1,two]"], "seeds"),
        (["spread.baseline=nowhere"], "spread.baseline=nowhere holds no baseline.json"),
        (["candidate=[nproc=two]", "metric.better=lower"], "the candidate [nproc=two]"),
        (["candidate=[seeds=[1,2]]", "metric.better=lower"], "the candidate changes seeds"),
        (["candidate=[threads=1]"], "metric.better"),
        (["twins=[[]]"], "twins"),
    ],
)
def test_a_mistake_is_told_before_anything_is_launched(tmp_path: Path, overrides: list[str], told: str) -> None:
    done = spread(tmp_path, REGEX, *overrides)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("run/launch-*"))


@pytest.mark.full
def test_ways_in_which_a_seed_arrives_and_a_metric_is_told(tmp_path: Path) -> None:
    some = ["seeds=[1,2,3]", "spread.repeats=1"]
    by_file = spread(
        tmp_path, *some, 'metric.jsonl="{out}/m.jsonl"', "metric.key=val.loss", args="--seed {seed} --log {out}/m.jsonl"
    )
    by_variable = spread(tmp_path, *some, REGEX, 'launcher.env.SEED="{seed}"', args="", out="variable")
    injected = spread(tmp_path, *some, REGEX, "seeding=inject", args="--how unseeded", out="injected")
    shared = spread(
        tmp_path, *some, "metric.jsonl=m.jsonl", "metric.key=val.loss", args="--seed {seed} --log m.jsonl", out="shared"
    )
    for done in (by_file, by_variable, injected, shared):
        assert (done.code, done.last_line) == (0, "MEASURED"), done.stdout + done.stderr
        assert done.verdict is not None
        assert len({one["value"] for one in done.verdict["launches"]}) == 3
    told = [
        [one["value"] for one in done.verdict["launches"]] for done in (by_file, by_variable, shared) if done.verdict
    ]
    assert told[0] == told[1] == told[2]


@pytest.mark.full
def test_the_scalars_that_a_script_gives_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    some = ["seeds=[1,2,3]", "spread.repeats=1", "metric.tag=val/loss"]
    own = [*some, 'metric.tensorboard="{out}/events"']
    last = spread(tmp_path, *own, args="--seed {seed} --events {out}/events")
    first = spread(tmp_path, *own, "metric.take=max", args="--seed {seed} --events {out}/events", out="first")
    shared = spread(tmp_path, *some, "metric.tensorboard=events", args="--seed {seed} --events events", out="shared")
    for done, more in ((last, 0.0), (first, 2.0), (shared, 0.0)):
        assert (done.code, done.last_line) == (0, "MEASURED"), done.stdout + done.stderr
        assert done.verdict is not None
        for one in done.verdict["launches"]:
            log = (tmp_path / done.verdict["folder"] / f"launch-{one['launch']}" / "rank-0.log").read_text()
            told = float(log.rpartition("val_loss=")[2])
            assert one["value"] == pytest.approx(told + more, rel=1e-6)  # TensorBoard keeps 32 bits
    wrong = spread(tmp_path, *own, "metric.tag=val/acc", args="--seed {seed} --events {out}/events", out="wrong")
    assert (wrong.code, wrong.last_line) == (2, "NOT_JUDGED")
    assert "Its tags are: val/loss" in " ".join(wrong.stdout.split())


@pytest.mark.full
def test_a_candidate_is_paired_by_seed_and_judged_by_six(tmp_path: Path) -> None:
    candidate = "candidate=[\"workload.args='--seed {seed} --scale 1.5'\"]"
    done = spread(tmp_path, REGEX, "seeds=[1,2,3,4,5,6]", "metric.better=lower", candidate)
    assert (done.code, done.last_line) == (1, "WORSE"), done.stdout + done.stderr
    assert done.verdict is not None
    assert done.verdict["comparison"]["p_permutation"] == pytest.approx(1 / 32)
    few = spread(tmp_path, REGEX, "seeds=[1,2,3,4,5]", "metric.better=higher", candidate, out="few")
    assert (few.code, few.last_line) == (2, "NOT_SHOWN"), few.stdout
    assert "cannot reach p < 0.05" in few.stdout.replace("\n           ", " ")
    idle = spread(tmp_path, REGEX, "seeds=[1,2,3]", "metric.better=higher", "candidate=[threads=1]", out="idle")
    assert (idle.code, idle.last_line) == (2, "NOT_SHOWN"), idle.stdout
    assert "it changes nothing" in " ".join(idle.stdout.split())


@pytest.mark.full
def test_half_the_learning_rate_of_digits_is_found(tmp_path: Path) -> None:
    tiny = ["nproc=2", "workload.size=tiny", "train.epochs=4", "output.dir=run", "spread.repeats=1"]
    done = run("spread", *tiny, "candidate=[workload.lr=0.0015]", "seeds=[1,2,3,4,5,6]", cwd=tmp_path)
    assert (done.code, done.last_line) == (1, "WORSE"), done.stdout + done.stderr
    assert done.verdict is not None
    assert done.verdict["comparison"]["gain"] < 0
