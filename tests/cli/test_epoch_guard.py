"""``epoch_guard`` as a user sets it: a script that forgets ``set_epoch``, or whose call reaches no worker."""

import json
from pathlib import Path

import pytest

from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import read_trace
from tests.command import Done, run

pytestmark = pytest.mark.worlds

SCRIPT = f"workload.path={Path(__file__).parents[1] / 'scripts' / 'epochs.py'}"


def checked(args: str, tmp_path: Path, *overrides: str) -> Done:
    asked = ["workload=script", SCRIPT, f"workload.args='{args}'", "nproc=3", "output.dir=run", *overrides]
    return run("check", *asked, cwd=tmp_path)


def epochs_of(tmp_path: Path, name: str, batches: int) -> list[list[bytes]]:
    """Return the digests of ``name`` in each epoch of so many batches, on rank 1 of the first launch."""
    trace = read_trace(RunFolder(tmp_path / "run").launch(0).trace(1))
    rows = [trace.observation(row) for row in range(len(trace))]
    found: dict[int, list[bytes]] = {}
    for row in rows:
        if row.name == name:
            found.setdefault(row.step // batches, []).append(row.digest)
    return list(found.values())


@pytest.mark.parametrize(
    ("args", "cause", "name"),
    [("", "epoch-order", "DistributedSampler[0].index"), ("--stream --set-epoch always", "epoch-order", "Stream[0].")],
)
def test_report_finds_it_and_lets_the_script_train_on(args: str, cause: str, name: str, tmp_path: Path) -> None:
    done = checked(args, tmp_path, "launches=1")
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert done.verdict is not None
    found = done.verdict["findings"][0]
    assert (found["cause"], found["step"], found["ranks"]) == (cause, 6, [0, 1, 2])
    assert found["name"].startswith(name)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("", "DistributedSampler is iterated again without a call of set_epoch since the last epoch"),
        ("--stream --set-epoch always", "Stream was told the epoch in the main process, and its copies in persistent"),
    ],
)
def test_error_stops_the_rank_at_once(args: str, words: str, tmp_path: Path) -> None:
    done = checked(args, tmp_path, "epoch_guard=error")
    done.assert_short_refusal()
    assert done.verdict is not None
    assert words in done.verdict["problems"][0]
    trace = read_trace(RunFolder(tmp_path / "run").launch(0).trace(0))
    assert int(trace.step.max()) == 6, "the first epoch is whole, and no step of the second was made"


@pytest.mark.parametrize(
    ("args", "name"),
    [("", "DistributedSampler[0].index"), ("--stream --set-epoch always", "Stream[0].batch")],
)
def test_fix_calls_it_and_says_so(args: str, name: str, tmp_path: Path) -> None:
    done = checked(args, tmp_path, "epoch_guard=fix")
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    assert done.verdict is not None
    note = f"{name.partition('.')[0]}: set_epoch was called for 1 pass on ranks 0 to 2 (epoch_guard=fix)"
    assert note in done.verdict["notes"]
    first, second = epochs_of(tmp_path, name, batches=6)
    assert first != second
    identity = json.loads(RunFolder(tmp_path / "run").identity.read_text())
    assert identity["experiment"]["config"]["epoch_guard"] == "fix"  # it moves bits


@pytest.mark.parametrize("args", ["--set-epoch later", "--set-epoch always --epochs 3"])
def test_error_lets_pass_what_is_told_the_epoch_before_each_but_the_first(args: str, tmp_path: Path) -> None:
    done = checked(args, tmp_path, "epoch_guard=error")
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    identity = json.loads(RunFolder(tmp_path / "run").identity.read_text())
    assert "epoch_guard" not in identity["experiment"]["config"]


def test_a_guard_that_would_watch_nothing_is_refused(tmp_path: Path) -> None:
    done = checked("", tmp_path, "epoch_guard=fix", "capture=off")
    done.assert_short_refusal()
    assert "epoch_guard=fix would do nothing" in done.stderr
