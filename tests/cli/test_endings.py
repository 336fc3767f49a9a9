"""However a run ends, the verdict is not wrong, the message is short, and nothing is left running."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddp_repro.trace.launch import read_launch_record
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import read_trace
from tests.command import TINY, Done, run
from tests.started import assert_nothing_runs, ended, running, started

pytestmark = pytest.mark.worlds

TEST = "DDP_REPRO_TEST_OF"
FAULTS = "workload._target_=planted.endings."


def await_steps(tmp_path: Path, ranks: int) -> None:
    """Wait until every rank of launch 0 has written steps."""
    folder = RunFolder(tmp_path / "run").launch(0)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        files = [folder.trace(rank) for rank in range(ranks)]
        if all(file.is_file() and file.stat().st_size > 20_000 for file in files):
            return
        time.sleep(0.1)
    pytest.fail("no steps were seen")


@pytest.fixture
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert_nothing_runs(tmp_path)


def assert_not_judged(done: Done, *told: str) -> None:
    done.assert_short_refusal()
    assert done.verdict is not None
    assert done.verdict["verdict"] == "NOT_JUDGED"
    problems = " ".join(done.verdict["problems"])
    for words in told:
        assert words in problems


@pytest.mark.usefixtures("_nothing_left")
def test_a_rank_killed_in_mid_step(tmp_path: Path) -> None:
    extra = {"TMPDIR": str(tmp_path)}
    done = run("check", f"{FAULTS}killed", "nproc=3", "output.dir=run", cwd=tmp_path, extra=extra, real=True)
    assert_not_judged(done, "rank 1 after 2 steps", "SIGKILL")
    trace = read_trace(RunFolder(tmp_path / "run").launch(0).trace(1))
    assert not trace.whole
    assert set(trace.step.tolist()) >= {-1, 0, 1}  # what was recorded before is there
    assert len(done.stdout.splitlines()) <= 24


@pytest.mark.usefixtures("_nothing_left")
def test_a_rank_that_raises(tmp_path: Path) -> None:
    extra = {"TMPDIR": str(tmp_path)}
    done = run("check", f"{FAULTS}raising", "nproc=2", "output.dir=run", cwd=tmp_path, extra=extra, real=True)
    assert_not_judged(done, "rank 1: ValueError: the label 11 is unknown")
    assert "Traceback" in RunFolder(tmp_path / "run").launch(0).log(1).read_text()


@pytest.mark.usefixtures("_nothing_left")
def test_a_rank_that_hangs(tmp_path: Path) -> None:
    extra = {"TMPDIR": str(tmp_path)}
    overrides = [f"{FAULTS}hanging", "nproc=2", "output.dir=run", "launcher.timeout_s=5"]
    done = run("check", *overrides, cwd=tmp_path, extra=extra, real=True)
    assert_not_judged(done, "no step was completed for 5 s")
    assert "waits_for_ever" in RunFolder(tmp_path / "run").launch(0).log(0).read_text()


@pytest.mark.usefixtures("_nothing_left")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    process = started(
        tmp_path, "check", "nproc=2", "workload.size=tiny", "train.epochs=500", "data.num_workers=1", "output.dir=run"
    )
    await_steps(tmp_path, 2)
    assert len(running(tmp_path)) >= 5  # the driver, two ranks, two loader workers
    process.send_signal(number)
    done = ended(process, tmp_path)
    assert_not_judged(done, number.name)
    record = read_launch_record(RunFolder(tmp_path / "run").launch(0).record)
    assert record.outcome == "interrupted"
    assert len(read_trace(RunFolder(tmp_path / "run").launch(0).trace(0))) > 100


@pytest.mark.usefixtures("_nothing_left")
def test_a_driver_that_is_killed_takes_its_world_along(tmp_path: Path) -> None:
    process = started(tmp_path, "check", "nproc=2", "workload.size=tiny", "train.epochs=500", "output.dir=run")
    await_steps(tmp_path, 2)
    process.kill()
    process.communicate(timeout=60)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can only be mounted as root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.usefixtures("_nothing_left")
def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    overrides = ["nproc=2", "workload.size=tiny", "train.epochs=40", f"output.dir={small_disk / 'run'}"]
    done = run("check", *overrides, cwd=tmp_path, extra={"TMPDIR": str(tmp_path)}, real=True)
    done.assert_short_refusal()
    assert "No space left on device" in done.stdout + done.stderr
    traces = [read_trace(RunFolder(small_disk / "run").launch(0).trace(rank)) for rank in range(2)]
    assert not any(trace.whole for trace in traces)
    assert all(len(trace) > 500 for trace in traces)


def test_one_launch_is_not_judged_reproducible(tmp_path: Path) -> None:
    done = run("check", *TINY, "nproc=2", "launches=1", "output.dir=run", cwd=tmp_path)
    assert_not_judged(done, "one launch")


def test_an_unobserved_run_is_not_judged(tmp_path: Path) -> None:
    done = run("check", *TINY, "nproc=2", "capture=off", "output.dir=run", cwd=tmp_path)
    assert_not_judged(done, "nothing was observed")


def test_unused_parameters_are_told_with_the_key_that_helps(tmp_path: Path) -> None:
    done = run("check", f"{FAULTS}unused", "nproc=3", "output.dir=run", cwd=tmp_path)
    assert_not_judged(done, "took no part in the loss", "ddp.find_unused_parameters=true")
    assert done.verdict is not None
    assert {found["cause"] for found in done.verdict["findings"]} <= {"unused-parameters"}
    mended = ["nproc=3", "ddp.find_unused_parameters=true", "train.max_steps=3"]
    assert run("check", f"{FAULTS}unused", *mended, cwd=tmp_path).code == 0


def test_a_part_that_the_loop_cannot_train_with_is_named(tmp_path: Path) -> None:
    done = run("check", f"{FAULTS}unreduced_loss", "nproc=2", "output.dir=run", cwd=tmp_path)
    assert_not_judged(done, "the workload's loss returned a tensor of shape [32, 10]", "loss.mean()")
