"""The folder of a run: claimed once, never mixed with another, and read without an exception."""

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddp_repro.errors import ReproError
from ddp_repro.trace.folder import (
    LaunchFolder,
    LaunchRecord,
    RankExit,
    RunFolder,
    claim_run_folder,
    load_launch,
    open_run_folder,
    read_json,
    read_launch_record,
    write_json,
    write_launch_record,
)
from ddp_repro.trace.identity import COMPARED, identity_digest
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter

WORLD = 3


def launch_record(index: int = 0, outcome: str = "finished", reason: str = "") -> LaunchRecord:
    ranks = [RankExit(rank=rank, exit_code=0, last_step=1) for rank in range(WORLD)]
    return LaunchRecord(launch=index, world_size=WORLD, outcome=outcome, reason=reason, ranks=ranks, seconds=1.5)


def write_rank(folder: LaunchFolder, rank: int, **different: Any) -> None:
    identity = {group: {"rank": rank} for group in COMPARED}
    digest = identity_digest(identity)
    meta = TraceMeta(identity=digest, launch=folder.index, rank=rank, world_size=WORLD, capture="step")
    writer = TraceWriter(folder.trace(rank), replace(meta, **different))
    writer.append(0, "loss", "loss", "float32[]", bytes([rank] * 16), 1.0)
    writer.close("finished")
    write_json(folder.rank_identity(rank), {"schema": 1, "rank": rank, "digest": digest, **identity})


@pytest.fixture
def launch(tmp_path: Path) -> LaunchFolder:
    folder = RunFolder(tmp_path).launch(0)
    folder.path.mkdir()
    for rank in range(WORLD):
        write_rank(folder, rank)
    write_launch_record(folder, launch_record())
    return folder


def problem_of(folder: LaunchFolder) -> str:
    problems = load_launch(folder).problems
    assert len(problems) == 1, problems
    return problems[0]


def test_names_of_all_files(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    launch = run.launch(12)

    names = [file.name for file in (run.config, run.run, run.verdict, run.identity)]
    assert names == ["config.yaml", "run.json", "verdict.json", "identity.json"]
    files = [launch.record, launch.trace(3), launch.log(3), launch.rank_identity(3), launch.final(3)]
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "launch-12/launch.json",
        "launch-12/rank-3.arrows",
        "launch-12/rank-3.log",
        "launch-12/rank-3.identity.json",
        "launch-12/rank-3.final.json",
    ]
    assert launch.index == 12


def test_launches_are_in_numeric_order_without_strangers(tmp_path: Path) -> None:
    for name in ("launch-10", "launch-2", "launch-0", "launch-x", "launch-01", "launch-1.bak", "launch-²", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "launch-5").touch()

    assert [launch.index for launch in RunFolder(tmp_path).launches()] == [0, 2, 10]
    assert RunFolder(tmp_path / "none").launches() == []


def test_claims_go_to_one_each(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "runs"
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda _: claim_run_folder(root).path.name, range(40)))

    assert sorted(map(int, claimed)) == list(range(40))


def test_a_claim_goes_past_what_is_there(tmp_path: Path) -> None:
    for name in ("3", "7", "golden"):
        (tmp_path / name).mkdir()

    assert claim_run_folder(tmp_path).path.name == "8"


def test_a_root_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(ReproError, match="cannot use the run folder"):
        claim_run_folder(tmp_path / "runs")
    with pytest.raises(ReproError, match="cannot use the run folder"):
        open_run_folder(tmp_path / "runs", overwrite=False)


def test_a_named_folder_without_a_run_is_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    assert open_run_folder(tmp_path, overwrite=False) == RunFolder(tmp_path)
    assert open_run_folder(tmp_path / "new" / "run", overwrite=False).path.is_dir()


def test_a_folder_that_holds_a_run_is_refused_and_kept(launch: LaunchFolder) -> None:
    before = sorted(launch.path.iterdir())
    with pytest.raises(ReproError, match="already holds a run"):
        open_run_folder(launch.path.parent, overwrite=False)
    assert sorted(launch.path.iterdir()) == before


def test_overwriting_removes_a_run_and_nothing_else(launch: LaunchFolder) -> None:
    run = RunFolder(launch.path.parent)
    run.launch(1).path.mkdir()
    write_json(run.run, {})
    mine = [run.path / "notes.txt", run.path / "launch-x.md"]
    for file in mine:
        file.write_text("mine")

    open_run_folder(run.path, overwrite=True)

    left = sorted(file for file in run.path.rglob("*") if file.is_file())
    assert left == sorted(mine)
    assert not run.launch(1).path.exists()


def test_what_a_script_wrote_to_the_folder_of_a_launch_is_not_removed(launch: LaunchFolder) -> None:
    run = RunFolder(launch.path.parent)
    write_json(run.run, {})
    (launch.path / "metrics.jsonl").write_text("mine")
    before = sorted(run.path.rglob("*"))
    with pytest.raises(ReproError, match=r"launch-\d+ holds metrics.jsonl, which is no file of the run") as refused:
        open_run_folder(run.path, overwrite=True)
    assert "{out}" in refused.value.hint
    assert sorted(run.path.rglob("*")) == before


def test_json_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "verdict.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2, "name": "é\udce9"})
    assert read_json(path) == {"a": 2, "name": "é\udce9"}

    def no_space(_file: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ReproError, match=r"cannot write .*verdict.json: No space left"):
        write_json(path, {"a": 3})
    assert read_json(path)["a"] == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"{'a': 1}", b"[" * 100_000, b"1" * 5000])
def test_what_is_no_json_object_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ReproError, match=r"run\.json"):
        read_json(tmp_path / "run.json")
    with pytest.raises(ReproError, match="missing"):
        read_json(tmp_path / "none.json")


def test_a_whole_launch_has_no_problems(launch: LaunchFolder) -> None:
    loaded = load_launch(launch)

    assert loaded.problems == []
    assert loaded.record == launch_record()
    assert sorted(loaded.traces) == sorted(loaded.identities) == list(range(WORLD))
    assert loaded.traces[2].observation(0).digest == bytes([2] * 16)


@pytest.mark.parametrize("outcome", ["failed", "hung", "interrupted", "stopped"])
def test_an_outcome_that_is_not_finished_is_a_problem(launch: LaunchFolder, outcome: str) -> None:
    write_launch_record(launch, launch_record(outcome=outcome, reason="rank 1 was killed by SIGKILL"))
    assert "rank 1 was killed by SIGKILL" in problem_of(launch)
    assert len(load_launch(launch).traces) == WORLD


def test_a_missing_record_is_a_problem_and_the_rest_is_read(launch: LaunchFolder) -> None:
    launch.record.unlink()
    assert "how launch 0 ended is unknown" in problem_of(launch)
    assert len(load_launch(launch).traces) == WORLD


def test_missing_cut_and_foreign_files_are_named(launch: LaunchFolder) -> None:
    trace = launch.trace(1)
    data = trace.read_bytes()
    trace.write_bytes(data[:-9])
    assert "rank 1: the trace is damaged or cut short" in problem_of(launch)
    trace.unlink()
    assert "rank-1.arrows: there is no such file" in problem_of(launch)
    launch.rank_identity(1).unlink()
    assert problem_of(launch) == "launch 0: rank 1 left neither a trace nor an identity"
    write_rank(launch, 1)
    launch.rank_identity(2).write_text("{")
    assert "rank-2.identity.json is not JSON" in problem_of(launch)
    write_json(launch.rank_identity(2), {"schema": 9})
    assert "newer version" in problem_of(launch)


def test_files_that_do_not_belong_together_are_named(launch: LaunchFolder) -> None:
    launch.trace(1).unlink()
    write_rank(launch, 1, launch=4)
    assert "its trace is of launch 4, rank 1" in problem_of(launch)
    launch.trace(1).unlink()
    write_rank(launch, 1, identity="0" * 32)
    assert "its identity is not the one" in problem_of(launch)
    launch.trace(1).unlink()
    write_rank(launch, 1, world_size=4)
    assert "its trace is of a world of 4, not of 3" in problem_of(launch)
    launch.trace(1).unlink()
    write_rank(launch, 1)
    write_rank(launch, 3)
    assert problem_of(launch) == "launch 0 had 3 ranks, but rank 3 left files there"


def test_an_identity_that_was_changed_afterwards_is_named(launch: LaunchFolder) -> None:
    identity = json.loads(launch.rank_identity(1).read_text())
    write_json(launch.rank_identity(1), {**identity, "software": {"torch": "another"}})
    assert "rank 1: its identity was changed after the launch" in problem_of(launch)


def test_a_record_of_a_newer_version_is_refused(launch: LaunchFolder) -> None:
    write_json(launch.record, {**json.loads(launch.record.read_text()), "schema": 2})
    with pytest.raises(ReproError, match="newer version"):
        read_launch_record(launch.record)


@pytest.mark.parametrize("field", ["launch", "world_size", "outcome", "ranks", "seconds", "schema", "reason"])
def test_a_record_with_a_wrong_field_is_a_problem(launch: LaunchFolder, field: str) -> None:
    content = json.loads(launch.record.read_text())
    wrongs: list[Any] = [[{}], {"a": 1}, "soup", -1]
    for wrong in wrongs:
        if field == "reason" or (field, wrong) == ("seconds", -1):
            continue
        write_json(launch.record, {**content, field: wrong})
        assert load_launch(launch).problems
    del content[field]
    write_json(launch.record, content)
    assert load_launch(launch).problems


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), record=st.booleans())
def test_damaged_json_never_stops_the_reader(launch: LaunchFolder, seed: int, record: bool) -> None:
    path = launch.record if record else launch.rank_identity(1)
    original = path.read_bytes()
    data = bytearray(original)
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        path.write_bytes(data[: chance.randint(1, len(data))])
        loaded = load_launch(launch)
        assert sorted(loaded.traces)[:2] == [0, 1]
    finally:
        path.write_bytes(original)


def test_an_empty_or_missing_launch_is_a_problem(tmp_path: Path) -> None:
    assert load_launch(RunFolder(tmp_path).launch(0)).problems


def test_what_ranks_ended_with_is_read_and_may_be_absent(launch: LaunchFolder) -> None:
    write_json(launch.final(1), {"schema": 1, "param": {"a": "00"}})
    loaded = load_launch(launch)
    assert loaded.problems == []
    assert loaded.finals == {1: {"schema": 1, "param": {"a": "00"}}}


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 99}', b'{"param": {}}'])
def test_an_end_that_cannot_be_read_is_a_problem(launch: LaunchFolder, content: bytes) -> None:
    launch.final(2).write_bytes(content)
    assert "rank 2: " in problem_of(launch)
    assert load_launch(launch).finals == {}


def test_files_of_several_launches_are_not_taken_for_one(launch: LaunchFolder) -> None:
    launch.trace(1).unlink()
    write_rank(launch, 1, launch_id="another")
    assert "launch 0, rank 1: its trace is of another launch than its record" in problem_of(launch)


def test_a_launch_has_its_id_in_record_and_traces(launch: LaunchFolder) -> None:
    for rank in range(WORLD):
        launch.trace(rank).unlink()
        write_rank(launch, rank, launch_id="this")
    write_launch_record(launch, replace(launch_record(), id="this"))
    loaded = load_launch(launch)
    assert loaded.problems == []
    assert loaded.record is not None
    assert {loaded.record.id, *(trace.meta.launch_id for trace in loaded.traces.values())} == {"this"}


def test_a_launch_from_before_there_were_ids_is_read(launch: LaunchFolder) -> None:
    content = json.loads(launch.record.read_text())
    del content["id"]
    launch.record.write_text(json.dumps(content))
    assert load_launch(launch).problems == []
