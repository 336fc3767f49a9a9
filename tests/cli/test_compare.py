"""Recorded runs against each other: what is comparable, what differs, and what damage does to a verdict."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.layout import RunFolder
from tests.command import TINY, run

pytestmark = pytest.mark.worlds

TWO = (*TINY, "nproc=2")
RECORDED: dict[str, tuple[str, ...]] = {
    "base": TWO,
    "again": TWO,
    "ranks": (*TINY, "nproc=3"),
    "seed": (*TWO, "seed=1"),
    "threads": (*TWO, "threads=2"),
    "variable": (*TWO, "+launcher.env.MKL_CBWR=COMPATIBLE"),
    "workers": (*TWO, "data.num_workers=2"),
    "unobserved": (*TWO, "capture=off"),
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for name, overrides in RECORDED.items():
        done = run("record", *overrides, f"output.dir={name}", cwd=folder)
        assert done.code == 0, done.stdout + done.stderr
        assert "observations of 2 ranks" in done.stdout or name in ("ranks", "unobserved")
    return folder


def compare(folder: Path, *names: str, overrides: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    number = sum(1 for _ in folder.glob("verdict-*"))
    runs = f"runs=[{','.join(names)}]"
    done = run("compare", runs, f"output.dir=verdict-{number}", *overrides, cwd=folder)
    assert done.verdict is not None, done.stdout + done.stderr
    assert done.last_line == done.verdict["verdict"]
    assert "Traceback" not in done.stderr
    return done.code, done.verdict


def final(folder: Path, name: str, rank: int) -> dict[str, Any]:
    content = json.loads(RunFolder(folder / name).launch(0).final(rank).read_text())
    assert len(content["param"]) >= 10
    return {key: content[key] for key in ("param", "buffer")}


def test_what_is_ignored_is_told(recorded: Path) -> None:
    ignore = 'judge.ignore=["*.running_mean","buffer:*.running_var","nobody"]'
    code, verdict = compare(recorded, "base", "again", overrides=(ignore,))
    assert (code, verdict["verdict"]) == (0, "REPRODUCIBLE")
    told = [note for note in verdict["notes"] if "ignore" in note]
    assert [note.partition(":")[0] for note in told[:1]] == ["ignored as judge.ignore says, *.running_mean"]
    assert told[-1] == "judge.ignore names nobody, which no observation has"
    assert compare(recorded, "base", "again", overrides=('judge.ignore=["*"]',))[0] == 2


def test_a_copy_of_a_run_is_not_compared_with_it(recorded: Path) -> None:
    shutil.copytree(recorded / "base", recorded / "copied")
    code, verdict = compare(recorded, "base", "copied")
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")
    (problem,) = verdict["problems"]
    assert problem == "copied/launch-0 is a copy of base/launch-0: no launch is compared with itself"
    assert compare(recorded, "copied", "again")[0] == 0


def test_equal_runs_are_reproducible(recorded: Path) -> None:
    code, verdict = compare(recorded, "base", "again")
    assert (code, verdict["verdict"]) == (0, "REPRODUCIBLE")
    assert verdict["classes"] == [[0, 1]]
    assert verdict["observations"] > 1000


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ("ranks", {"experiment.world_size"}),
        ("seed", {"experiment.seed"}),
        ("threads", {"experiment.threads", "environment.threads"}),
        ("variable", {"environment.variables.MKL_CBWR"}),
        ("workers", {"experiment.config.data.num_workers"}),
        ("unobserved", {"experiment.config.capture.level"}),
    ],
)
def test_what_makes_runs_incomparable_is_named(recorded: Path, other: str, fields: set[str]) -> None:
    code, verdict = compare(recorded, "base", other)
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")
    assert fields <= {difference["field"] for difference in verdict["identity"]["differences"]}
    assert "world size" in " ".join(verdict["problems"]) or other != "ranks"


def test_what_is_allowed_to_differ_is_judged_and_told(recorded: Path) -> None:
    allow = "compare.allow=[experiment.config.data.num_workers]"
    code, verdict = compare(recorded, "base", "workers", overrides=(allow,))
    assert (code, verdict["verdict"]) == (0, "REPRODUCIBLE")
    assert verdict["identity"]["differences"][0]["allowed"]
    assert any("the workers' own generators were not" in note for note in verdict["notes"])


def test_another_seed_diverges_at_the_first_parameter(recorded: Path) -> None:
    code, verdict = compare(recorded, "base", "seed", overrides=("compare.allow=[experiment]",))
    assert (code, verdict["verdict"]) == (1, "DIVERGED")
    first = verdict["findings"][0]
    assert (first["phase"], first["name"], first["step"]) == ("init", "features.0.weight", -1)


def test_the_world_size_is_never_allowed_to_differ(recorded: Path) -> None:
    code, verdict = compare(recorded, "base", "ranks", overrides=("compare.allow=[experiment]",))
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")


def test_workers_and_the_observer_move_no_bit(recorded: Path) -> None:
    for rank in range(2):
        base = final(recorded, "base", rank)
        assert base == final(recorded, "workers", rank)
        assert base == final(recorded, "unobserved", rank)
        assert base != final(recorded, "seed", rank)


def test_a_launch_is_not_compared_with_itself(recorded: Path) -> None:
    assert compare(recorded, "base", "base")[0] == 2


def damaged(recorded: Path, tmp_path: Path) -> Path:
    for name in ("base", "again"):
        shutil.copytree(recorded / name, tmp_path / name)
    return RunFolder(tmp_path / "again").launch(0).trace(1)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_cut_trace_is_not_judged(recorded: Path, tmp_path: Path, part: float) -> None:
    trace = damaged(recorded, tmp_path)
    content = trace.read_bytes()
    trace.write_bytes(content[: int(len(content) * part)])
    code, verdict = compare(tmp_path, "base", "again")
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")
    assert "rank-1.arrows" in " ".join(verdict["problems"]) or "rank 1" in " ".join(verdict["problems"])


@pytest.mark.parametrize("part", [0.01, 0.3, 0.7, 0.99])
def test_a_flipped_bit_is_not_judged(recorded: Path, tmp_path: Path, part: float) -> None:
    trace = damaged(recorded, tmp_path)
    content = bytearray(trace.read_bytes())
    content[int(len(content) * part)] ^= 4
    trace.write_bytes(content)
    code, verdict = compare(tmp_path, "base", "again")
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")


@pytest.mark.parametrize("name", ["launch.json", "rank-1.identity.json", "rank-1.arrows"])
def test_a_missing_file_is_not_judged(recorded: Path, tmp_path: Path, name: str) -> None:
    trace = damaged(recorded, tmp_path)
    (trace.parent / name).unlink()
    code, verdict = compare(tmp_path, "base", "again")
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")


def test_a_changed_identity_file_is_not_judged(recorded: Path, tmp_path: Path) -> None:
    trace = damaged(recorded, tmp_path)
    file = trace.parent / "rank-1.identity.json"
    content = json.loads(file.read_text())
    content["software"]["torch"] = "2.0.0"
    file.write_text(json.dumps(content))
    code, verdict = compare(tmp_path, "base", "again")
    assert (code, verdict["verdict"]) == (2, "NOT_JUDGED")


def test_compare_needs_no_torch(recorded: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "torch"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError('compare must do without torch')")
    extra = {"PYTHONPATH": str(tmp_path)}
    done = run("compare", f"runs=[{recorded / 'base'},{recorded / 'again'}]", cwd=tmp_path, extra=extra)
    assert done.code == 0, done.stdout + done.stderr
