"""A rank that is killed in mid-run: whatever was asked, nothing is concluded, and nothing is left running."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.command import Done
from tests.started import assert_nothing_runs, ended, running, started

pytestmark = [pytest.mark.worlds, pytest.mark.full, pytest.mark.usefixtures("_nothing_left")]

TIMEOUT_S = 240
SCRIPTS = Path(__file__).parents[1] / "scripts"
MEASURED = ("workload=script", f"workload.path={SCRIPTS / 'measured.py'}", "nproc=2", "output.dir=run")
CANDIDATE = "candidate=[\"workload.args='--seed {seed} %s'\"]"


@pytest.fixture
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert_nothing_runs(tmp_path)


def assert_not_judged(done: Done, *told: str) -> None:
    assert (done.code, done.last_line) == (2, "NOT_JUDGED"), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.verdict is not None
    assert (done.verdict["verdict"], done.verdict["exit_code"]) == ("NOT_JUDGED", 2)
    for words in told:
        assert words in done.verdict["problems"][0]
        assert words in " ".join(done.stdout.split())


def await_training(folder: Path, launch: int) -> None:
    """Wait until rank 1 of that launch says that it trains."""
    log = folder / "run" / f"launch-{launch}" / "rank-1.log"
    deadline = time.monotonic() + 120
    while not (log.is_file() and "training" in log.read_text()):
        assert time.monotonic() < deadline, "rank 1 was not seen to train"
        time.sleep(0.05)


def rank_of(folder: Path, launch: int) -> psutil.Process:
    """Return the process of rank 1 of that launch."""
    ranks = [one for one in running(folder) if one.environ().get("RANK") == "1"]
    (rank,) = [one for one in ranks if f"launch-{launch}" in " ".join(one.cmdline())]
    return rank


def test_a_candidate_that_is_killed_by_its_process_id_while_it_trains(tmp_path: Path) -> None:
    overrides = (
        *MEASURED, 'workload.args="--seed {seed}"', 'metric.regex="val_loss=(.*)"', "metric.better=lower",
        "seeds=[1,2,3]", CANDIDATE % "--steps 100000000 --how talking",
    )  # fmt: skip
    process = started(tmp_path, "spread", *overrides)
    await_training(tmp_path, launch=1)
    rank_of(tmp_path, launch=1).kill()
    done = ended(process, tmp_path, TIMEOUT_S)
    assert_not_judged(done, "launch 1 (seed 1)", "rank 1", "SIGKILL")
    assert sorted(path.name for path in (tmp_path / "run").glob("launch-*")) == ["launch-0", "launch-1"]
    assert not (tmp_path / "run" / "baseline.json").exists()


def test_a_candidate_whose_rank_is_killed_in_its_third_step(tmp_path: Path) -> None:
    overrides = (
        *MEASURED, 'workload.args="--seed {seed}"', 'metric.regex="val_loss=(.*)"', "metric.better=lower",
        "seeds=[1,2,3]", CANDIDATE % "--how killed",
    )  # fmt: skip
    assert_not_judged(
        ended(started(tmp_path, "spread", *overrides), tmp_path, TIMEOUT_S), "launch 1 (seed 1)", "SIGKILL"
    )


def test_an_arm_of_cost_whose_rank_is_killed_in_its_third_step(tmp_path: Path) -> None:
    overrides = (*MEASURED, 'workload.args="--steps 1000 --how killed-when-strict"', "cost.switches=false")
    done = ended(started(tmp_path, "cost", *overrides), tmp_path, TIMEOUT_S)
    assert_not_judged(done, "launch 1 (debug)", "rank 1", "SIGKILL")
    assert done.verdict is not None
    assert [one["arm"] for one in done.verdict["launches"]] == ["leave"]
    assert done.verdict["arms"] == []


def test_a_survey_whose_rank_is_killed_in_its_third_step(tmp_path: Path) -> None:
    overrides = (*MEASURED, 'workload.args="--steps 1000 --how killed-when-strict"')
    assert_not_judged(ended(started(tmp_path, "survey", *overrides), tmp_path, TIMEOUT_S), "launch 0", "SIGKILL")


def test_a_search_whose_rank_is_killed_with_all_suspects_off(tmp_path: Path) -> None:
    overrides = (
        "workload=script", f"workload.path={SCRIPTS / 'suspects.py'}", "nproc=2", "output.dir=run", "launches=2",
        'workload.args="--planted algorithms --fragile"', "bisect.skip=[hash_seed,seeds,distributed]",
    )  # fmt: skip
    done = ended(started(tmp_path, "bisect", *overrides), tmp_path, TIMEOUT_S)
    assert_not_judged(done, "with all suspects off it could not be judged", "rank 1", "SIGKILL")
    assert done.verdict is not None
    first = done.verdict["outcomes"][0]
    assert (first["outcome"], first["off"]) == ("diverges", [])


def test_a_driver_of_cost_that_is_told_to_stop(tmp_path: Path) -> None:
    overrides = (*MEASURED, 'workload.args="--steps 100000000 --how talking"', "cost.steps=100000")
    process = started(tmp_path, "cost", *overrides)
    await_training(tmp_path, launch=0)
    process.send_signal(signal.SIGTERM)
    assert_not_judged(ended(process, tmp_path, TIMEOUT_S), "launch 0 (leave)", "SIGTERM")
