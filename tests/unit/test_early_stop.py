"""Who goes along with a launch: files that grow as ranks write them, without ranks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ddp_repro import early_stop
from ddp_repro.config import CaptureConfig, CaptureLevel, CheckConfig
from ddp_repro.early_stop import EarlyStop, Follower, validate_early_stop
from ddp_repro.errors import ReproError
from ddp_repro.judge.judgement import Rules
from ddp_repro.run.variants import Variant, only_variant
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import PARTED, Launch, LaunchRecord, Parting, RankExit, load_launch, write_launch_record
from ddp_repro.trace.layout import LaunchFolder, RunFolder
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from tests.unit.synthetic import Ranks, Script, changed, digest, from_step, identity, ranks, write_launch

SCRIPT = Script(world_size=3, workers=2, epochs=3)
CLEAN = ranks(SCRIPT)
RULES = Rules()


@dataclass(kw_only=True)
class Growing:
    """A launch that is written step by step."""

    folder: LaunchFolder
    rows: Ranks
    writers: dict[int, TraceWriter] = field(default_factory=dict)

    def begin(self) -> None:
        self.folder.path.mkdir(parents=True)
        told = identity(experiment__world_size=3)
        for rank in self.rows:
            write_json(self.folder.rank_identity(rank), {**told, "rank": rank})
            meta = TraceMeta(identity=told["digest"], launch=1, rank=rank, world_size=3, capture="step")
            self.writers[rank] = TraceWriter(self.folder.trace(rank), meta)

    def write(self, step: int, *, but: tuple[int, ...] = ()) -> None:
        for rank, writer in self.writers.items():
            for row in self.rows[rank]:
                if row.step == step and rank not in but:
                    writer.append(row.step, row.phase, row.name, row.spec, digest(row), row.value)
            writer.flush()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return write_launch(tmp_path_factory.mktemp("run"), 0, CLEAN)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_stop, "_LONGEST_S", 0.05)


@contextmanager
def followed(first: Launch, growing: Growing) -> Iterator[tuple[Follower, list[str]]]:
    notes: list[str] = []
    growing.begin()
    with Follower(lambda: first, growing.folder, RULES, notes.append) as follower:
        yield follower, notes
    assert not follower._thread.is_alive()


def settled(follower: Follower, *, wait_s: float = 0.4) -> Parting | None:
    """Return what was found, for which it has a while."""
    deadline = time.monotonic() + 10 * wait_s
    time.sleep(wait_s)
    while follower.parting() is None and follower._spent == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    return follower.parting()


def test_a_difference_is_found_once_its_step_is_whole_on_every_rank(first: Launch, tmp_path: Path) -> None:
    rows = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="grad_local", name="conv.bias")}
    rows = {rank: from_step(own, 2, "grad_reduced") for rank, own in rows.items()}
    growing = Growing(folder=LaunchFolder(tmp_path / "launch-1"), rows=rows)
    with followed(first, growing) as (follower, notes):
        for step in (-1, 0, 1, 2, 3):
            growing.write(step)
        assert settled(follower) is None
        growing.write(4, but=(2,))
        assert settled(follower) is None, "rank 2 is not that far yet"
        growing.write(5, but=(0, 1))
        assert settled(follower) == Parting(reference=0, step=2, ranks=(1,), phase="grad_local", name="conv.bias")
    assert notes == []


def test_an_equal_launch_and_one_that_draws_from_no_generator_go_on(first: Launch, tmp_path: Path) -> None:
    rows = {rank: changed(own, "unseeded", name="python") for rank, own in CLEAN.items()}
    growing = Growing(folder=LaunchFolder(tmp_path / "launch-1"), rows=rows)
    with followed(first, growing) as (follower, notes):
        for step in range(-1, 12):
            growing.write(step)
            time.sleep(0.02)
        assert settled(follower) is None
        assert any(rank.growing._excused for rank in follower._ranks.values()), "it was looked into"
    assert notes == []


def test_what_a_rank_writes_that_is_no_trace_ends_the_following_and_is_told(first: Launch, tmp_path: Path) -> None:
    growing = Growing(folder=LaunchFolder(tmp_path / "launch-1"), rows=CLEAN)
    broken = first.path.parent / "nowhere"

    def load() -> Launch:
        raise ReproError(f"{broken} cannot be read", hint="")

    notes: list[str] = []
    growing.begin()
    with Follower(load, growing.folder, RULES, notes.append) as follower:
        follower._thread.join(5)
        assert follower.parting() is None
    assert notes == [f"launch 1 would not have been ended early (fail_fast): {broken} cannot be read"]


def record(run: RunFolder, launch: int, *, outcome: str = "finished", steps: int = 60) -> None:
    run.launch(launch).path.mkdir(parents=True, exist_ok=True)
    exits = [RankExit(rank=0, exit_code=0, last_step=steps)]
    write_launch_record(
        run.launch(launch),
        LaunchRecord(launch=launch, world_size=1, outcome=outcome, reason="", ranks=exits, seconds=1.0),
    )


def stop(run: RunFolder, config: CheckConfig, variants: list[Variant] | None = None) -> EarlyStop:
    return EarlyStop(config=config, folder=run, variants=variants or only_variant(config, 4), rules=RULES)


def test_which_launches_are_followed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    record(run, 0, steps=51)
    assert stop(run, CheckConfig()).follow(0) is None, "the first launch of all is whole"
    assert stop(run, CheckConfig()).follow(1) is not None
    assert stop(run, CheckConfig(fail_fast=False)).follow(1) is None
    record(run, 0, steps=50)
    assert stop(run, CheckConfig()).follow(1) is None, "it is over before much is gained"
    assert stop(run, CheckConfig(fail_fast=True)).follow(1) is not None


def test_which_launch_it_is_compared_with(tmp_path: Path) -> None:
    run, config = RunFolder(tmp_path), CheckConfig(twins=[[], ["a=1"]], launches=2)
    twins = [Variant(config=config, launches=(0, 1)), Variant(config=config, launches=(2, 3))]
    for launch in range(4):
        record(run, launch)
    references = [stop(run, config, twins)._reference_of(launch) for launch in range(4)]
    assert references == [None, 0, 0, 2]
    record(run, 2, outcome=PARTED)
    assert stop(run, config, twins)._reference_of(3) == 0


def test_fail_fast_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ReproError, match="one launch"):
        validate_early_stop(CheckConfig(fail_fast=True), only_variant(CheckConfig(), 1))
    off = CheckConfig(fail_fast=True, capture=CaptureConfig(level=CaptureLevel.off))
    with pytest.raises(ReproError, match="capture=off"):
        validate_early_stop(off, only_variant(off, 2))
    validate_early_stop(CheckConfig(), only_variant(CheckConfig(), 1))


def test_a_record_keeps_what_ended_the_launch(tmp_path: Path) -> None:
    folder = LaunchFolder(tmp_path / "launch-1")
    folder.path.mkdir()
    parting = Parting(reference=0, step=55, ranks=(1, 2), phase="loss", name="loss")
    written = LaunchRecord(
        launch=1, world_size=1, outcome=PARTED, reason="why", ranks=[], seconds=1.0, id="x", parting=parting
    )
    write_launch_record(folder, written)
    assert load_launch(folder).record == written
