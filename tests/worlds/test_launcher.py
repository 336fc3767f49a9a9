"""The launcher with small programs as ranks: every way in which a world can end."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ddp_repro.run.following import Following
from ddp_repro.run.launcher import WorldPlan, run_world
from ddp_repro.run.processes import MARK, marked
from ddp_repro.trace.launch import LaunchRecord, Parting, read_launch_record
from ddp_repro.trace.layout import LaunchFolder

pytestmark = pytest.mark.worlds

HEAD = """
import os, signal, subprocess, sys, time
from ddp_repro.run.progress import ProgressPipe
rank = int(os.environ["RANK"])
pipe = ProgressPipe(rank)
"""


def run(
    tmp_path: Path,
    body: str,
    *,
    timeout_s: float = 20.0,
    grace_s: float = 0.5,
    begin: str = "pipe.send('started')\n",
    following: Following | None = None,
) -> LaunchRecord:
    script = tmp_path / "rank.py"
    script.write_text(HEAD + begin + textwrap.dedent(body))
    folder = LaunchFolder(tmp_path / "launch-0")
    folder.path.mkdir()
    steps: list[tuple[int, int | None]] = []
    sizes: list[tuple[int, int | None]] = []
    plan = WorldPlan(
        folder=folder,
        argv=[sys.executable, str(script)],
        nproc=3,
        environ={**os.environ, "DDP_REPRO_TEST": str(tmp_path)},
        timeout_s=timeout_s,
        grace_s=grace_s,
        on_step=lambda step, total: steps.append((step, total)),
        following=following,
        on_size=lambda size, planned: sizes.append((size, planned)),
    )
    record = run_world(plan)
    (tmp_path / "steps").write_text(repr(steps))
    (tmp_path / "sizes").write_text(repr(sizes))
    assert read_launch_record(folder.record) == record
    assert not left_over(tmp_path)
    return record


def left_over(tmp_path: Path) -> list[int]:
    """Return the processes of this test's worlds that still live."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DDP_REPRO_TEST") == str(tmp_path) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


class Stops:
    """Has the world ended once ``file`` is there."""

    PARTING = Parting(reference=0, step=3, ranks=(1,), phase="loss", name="loss")

    def __init__(self, file: Path, *, late: bool = False) -> None:
        self.file = file
        self.entered = self.left = 0
        self._late = late

    def __enter__(self) -> object:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.left += 1

    def parting(self) -> Parting | None:
        if self.file.exists() and self._late:
            self._late = False
            time.sleep(1.0)  # for what the rank does after it wrote the file
            return None
        return self.PARTING if self.file.exists() else None


def test_a_world_that_is_ended_early_leaves_nothing_behind(tmp_path: Path) -> None:
    body = """
    sleep = [sys.executable, '-c', 'import time; time.sleep(600)']
    subprocess.Popen(sleep, start_new_session=True)
    pipe.send('step', step=5)
    if rank == 0: open(os.environ['DDP_REPRO_TEST'] + '/enough', 'w').close()
    time.sleep(600)
    """
    stops = Stops(tmp_path / "enough")
    record = run(tmp_path, body, following=stops)
    assert (record.outcome, record.parting) == ("parted", Stops.PARTING)
    assert [end.exit_code for end in record.ranks] == [-9, -9, -9]
    assert record.reason.startswith("ended by the driver after ")
    assert record.reason.endswith("its first difference from launch 0: step 3, rank 1, loss, loss")
    assert (stops.entered, stops.left) == (1, 1)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [("sys.exit(3)", "failed"), ("pipe.send('observed')", "finished"), ("pipe.send('leaving', text='oops')", "failed")],
)
def test_a_world_that_ends_by_itself_is_told_as_that(tmp_path: Path, last: str, outcome: str) -> None:
    body = f"""
    open(os.environ['DDP_REPRO_TEST'] + '/enough', 'w').close()
    {last}
    if {outcome == "failed"}: sys.exit(1)
    """
    stops = Stops(tmp_path / "enough", late=True)
    record = run(tmp_path, body, following=stops)
    assert (record.outcome, record.parting) == (outcome, None)
    assert (stops.entered, stops.left) == (1, 1)


def test_a_world_that_finishes(tmp_path: Path) -> None:
    body = """
    pipe.send('planned', step=2)
    pipe.send('step', step=1)
    if rank == 0: pipe.send('size', step=64_000)
    pipe.send('step', step=2)
    pipe.send('observed')
    """
    record = run(tmp_path, body)
    assert record.outcome == "finished"
    assert (tmp_path / "steps").read_text() == "[(1, 2), (2, 2)]"
    assert (tmp_path / "sizes").read_text() == "[(64000, 2)]"
    assert record.reason == ""
    assert [(end.rank, end.exit_code, end.last_step) for end in record.ranks] == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]


def test_a_rank_that_leaves_early_with_code_0_is_a_failure(tmp_path: Path) -> None:
    record = run(tmp_path, "pipe.send('step', step=1)\nif rank != 1: pipe.send('observed'); time.sleep(60)")
    assert record.outcome == "failed"
    assert "rank 1 after 1 steps: left with exit code 0 before its training ended" in record.reason


def test_a_killed_rank_is_named_and_the_others_are_ended(tmp_path: Path) -> None:
    record = run(
        tmp_path, "pipe.send('step', step=4)\nif rank == 2: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)"
    )
    assert record.outcome == "failed"
    assert "rank 2 after 4 steps: killed by SIGKILL" in record.reason
    assert [end.exit_code for end in record.ranks] == [-9, -9, -9]


def test_an_error_that_a_rank_told_is_the_reason(tmp_path: Path) -> None:
    body = """
    if rank == 1:
        pipe.send('error', text='no such file.', hint='Name one.')
        sys.exit(2)
    time.sleep(60)
    """
    record = run(tmp_path, body)
    assert record.outcome == "failed"
    assert record.reason == "rank 1: no such file; Name one."


def test_a_hang_is_ended_with_the_stacks_in_the_log(tmp_path: Path) -> None:
    body = """
    import faulthandler
    faulthandler.register(signal.SIGUSR1)
    pipe.send('step', step=3)
    def waits_for_ever(): time.sleep(600)
    waits_for_ever()
    """
    began = time.monotonic()
    record = run(tmp_path, body, timeout_s=1.5)
    assert time.monotonic() - began < 20
    assert record.outcome == "hung"
    assert "no step was completed for 1.5 s" in record.reason
    assert "rank 0: 3" in record.reason
    assert "waits_for_ever" in (tmp_path / "launch-0" / "rank-1.log").read_text()


def test_a_slow_start_is_no_hang(tmp_path: Path) -> None:
    body = "time.sleep(2)\npipe.send('step', step=1); pipe.send('observed', step=1)"
    assert run(tmp_path, body, timeout_s=1.0, begin="").outcome == "finished"


def test_a_rank_that_never_starts_is_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_repro.run.launcher.STARTUP_S", 2.0)
    body = "if rank != 1: pipe.send('started')\ntime.sleep(600)"
    record = run(tmp_path, body, timeout_s=1.0, begin="")
    assert record.outcome == "hung"
    assert "rank 1 did not start within 2 s" in record.reason


def test_children_in_sessions_of_their_own_are_ended_too(tmp_path: Path) -> None:
    body = """
    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
    pipe.send('step', step=1)
    sys.exit(3)
    """
    record = run(tmp_path, body)
    assert record.outcome == "failed"
    assert "exit code 3" in record.reason


def test_a_child_that_hides_is_ended_too_and_nobody_elses(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    body = """
    sleep = [sys.executable, '-c', 'import time; time.sleep(600)']
    quiet = "stdout=subprocess.DEVNULL, start_new_session=True, env={}"
    hides = f"import subprocess; print(subprocess.Popen({sleep!r}, {quiet}).pid)"
    told = subprocess.run([sys.executable, '-c', hides], stdout=subprocess.PIPE, env={}, start_new_session=True)
    orphan = told.stdout.decode().strip()
    child = subprocess.Popen(sleep, start_new_session=True, env={}).pid
    subprocess.Popen(['true'], start_new_session=True, env={})
    with open(os.environ['DDP_REPRO_TEST'] + f'/hidden-{rank}', 'w') as file:
        file.write(f'{orphan} {child}')
    pipe.send('observed', step=1)
    """
    try:
        assert run(tmp_path, body).outcome == "finished"
        assert len(hidden(tmp_path)) == 6
        assert not any(map(psutil.pid_exists, hidden(tmp_path)))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        for pid in hidden(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def hidden(tmp_path: Path) -> list[int]:
    return [int(pid) for file in tmp_path.glob("hidden-*") for pid in file.read_text().split()]


def test_a_hang_in_teardown_is_ended_and_said_but_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_repro.run.rank_state.TEARDOWN_S", 0.5)
    record = run(tmp_path, "pipe.send('observed', step=5)\nif rank == 1: time.sleep(600)")
    assert record.outcome == "finished"
    assert "ended by the driver" in record.ranks[1].note
    assert record.ranks[0].note == ""


def test_marked_finds_only_the_marked(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, MARK: "here"})
    try:
        assert [process.pid for process in marked("here")] == [child.pid]
        assert marked("elsewhere") == []
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
