"""A launch against what another one left as a golden: equal, changed in a place, stale, or not to be judged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.config import CheckConfig, GoldenConfig, GoldenLevel, JudgeConfig
from ddp_repro.config.commands import CompareRules
from ddp_repro.errors import ReproError, Verdict
from ddp_repro.golden.asking import Asked
from ddp_repro.golden.holding import hold_to_golden
from ddp_repro.judge.causes_between import BETWEEN_LAUNCHES
from ddp_repro.judge.findings import GoldenOutcome, Judgement
from ddp_repro.judge.golden import Keeping, as_launch, difference, golden_of
from ddp_repro.judge.golden_causes import BY_PHASE, CHANGED
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.run.driver import Invocation
from ddp_repro.trace.golden import golden_bytes, read_golden
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.layout import RunFolder
from tests.unit.synthetic import Ranks, Row, Script, changed, from_step, identity, launch_of, ranks

SCRIPT = Script(world_size=3, workers=2, epochs=1, length=36)
CLEAN = ranks(SCRIPT)
STEP = Keeping(level="step", ignore=(), observer="a")
FULL = replace(STEP, level="full")
BOTH = pytest.mark.parametrize("keeping", [STEP, FULL], ids=["step", "full"])
ENDS = {rank: {"schema": 1, "param": {"conv.weight": "aa"}, "buffer": {"norm.mean": f"b{rank}"}} for rank in CLEAN}


def launch(written: Ranks = CLEAN, **changes: Any) -> Launch:
    identities = {rank: identity(experiment__world_size=len(written), **changes) for rank in written}
    return replace(launch_of(written), identities=identities, finals=ENDS)


def first(keeping: Keeping, written: Ranks, golden: Ranks = CLEAN) -> tuple[int, tuple[int, ...], str] | None:
    kept = golden_of(launch(golden), keeping)
    found = difference(kept, launch(written), keeping, golden_of(launch(written), keeping))
    if found is None:
        return None
    assert found.found.first is not None
    return found.found.first.step, found.found.ranks, found.found.first.phase


@BOTH
def test_an_equal_launch_is_equal(keeping: Keeping) -> None:
    assert first(keeping, CLEAN) is None


ROWS = [(rank, at) for rank, rows in CLEAN.items() for at in range(len(rows))]


@BOTH
@given(at=st.sampled_from(ROWS))
def test_any_single_change_is_found_in_its_step_and_phase(keeping: Keeping, at: tuple[int, int]) -> None:
    rank, number = at
    row = CLEAN[rank][number]
    rows = [*CLEAN[rank]]
    rows[number] = replace(row, content="changed")
    found = first(keeping, {**CLEAN, rank: rows})
    if row.phase == "rng":  # the first state of a generator says nothing until it is another one
        assert found is None or found[1:] == ((rank,), "rng")
    else:
        assert found == (row.step, (rank,), row.phase)


def test_a_generator_that_draws_where_it_did_not_is_found_there() -> None:
    rows = [replace(row, content="drawn") if (row.step, row.name) == (2, "python") else row for row in CLEAN[1]]
    assert first(STEP, {**CLEAN, 1: rows}) == (2, (1,), "rng")


def test_a_generator_that_nothing_draws_from_may_begin_anywhere() -> None:
    rows = [replace(row, content="other") if row.name == "python" else row for row in CLEAN[1]]
    assert first(STEP, {**CLEAN, 1: rows}) is None
    assert first(FULL, {**CLEAN, 1: rows}) is None


@BOTH
def test_rows_in_another_order_are_equal_but_for_data(keeping: Keeping) -> None:
    places = [at for at, row in enumerate(CLEAN[0]) if (row.step, row.phase) == (1, "grad_local")]
    rows = [*CLEAN[0]]
    rows[places[0]], rows[places[1]] = rows[places[1]], rows[places[0]]
    assert first(keeping, {**CLEAN, 0: rows}) is None
    places = [at for at, row in enumerate(CLEAN[0]) if row.step == 1 and row.name.endswith(".index")]
    rows = [*CLEAN[0]]
    rows[places[0]], rows[places[1]] = rows[places[1]], rows[places[0]]
    assert first(keeping, {**CLEAN, 0: rows}) == (1, (0,), "data")


@BOTH
def test_a_difference_that_spreads_is_placed_where_it_begins(keeping: Keeping) -> None:
    spread = {rank: from_step(rows, 2, "grad_local" if rank == 1 else "grad_reduced") for rank, rows in CLEAN.items()}
    assert first(keeping, spread) == (2, (1,), "grad_local")


@BOTH
def test_a_buffer_as_the_forward_begins_stands_before_the_loss(keeping: Keeping) -> None:
    rows = [
        replace(row, content="other")
        if row.step == 1 and (row.phase == "loss" or row.spec == "float32[4] replicated")
        else row
        for row in CLEAN[2]
    ]
    assert first(keeping, {**CLEAN, 2: rows}) == (1, (2,), "buffer")


@BOTH
def test_operators_are_no_part_of_what_is_compared(keeping: Keeping) -> None:
    rows = [*CLEAN[0], Row(5, "op", "conv/aten::empty#1.out", "float32[8]", "anything")]
    assert first(keeping, {**CLEAN, 0: rows}) is None


@BOTH
def test_a_missing_and_a_further_row_are_found(keeping: Keeping) -> None:
    at = next(at for at, row in enumerate(CLEAN[1]) if (row.step, row.phase) == (1, "param"))
    assert first(keeping, {**CLEAN, 1: CLEAN[1][:at] + CLEAN[1][at + 1 :]}) == (1, (1,), "param")
    assert first(keeping, {**CLEAN, 1: CLEAN[1][:-40]}) is not None


@BOTH
def test_what_ranks_end_with_counts(keeping: Keeping) -> None:
    ends = {**ENDS, 2: {"schema": 1, "param": {"conv.weight": "bb"}, "buffer": {"norm.mean": "b2"}}}
    kept = golden_of(launch(), keeping)
    other = replace(launch(), finals=ends)
    found = difference(kept, other, keeping, golden_of(other, keeping))
    assert found is not None
    told = found.finding("")
    assert (told.cause, told.step, told.ranks, told.phase) == ("other-end", None, (2,), "param")


@BOTH
def test_what_is_ignored_does_not_count(keeping: Keeping) -> None:
    ignoring = replace(keeping, ignore=("*.bias",))
    rows = changed(CLEAN[0], step=1, phase="param", name="conv.bias")
    kept = golden_of(launch(), ignoring)
    other = launch({**CLEAN, 0: rows})
    assert difference(kept, other, ignoring, golden_of(other, ignoring)) is None
    assert first(keeping, {**CLEAN, 0: rows}) == (1, (0,), "param")


def test_a_golden_is_one_digest_for_each_step_and_phase() -> None:
    kept = golden_of(launch(), STEP)
    phases = {(row.step, row.phase, "replicated" in row.spec and row.phase == "buffer") for row in CLEAN[0]}
    assert len(kept.traces[0]) == len(phases)
    assert len(golden_of(launch(), FULL).traces[0]) == len(CLEAN[0])


@BOTH
def test_what_is_of_one_launch_is_not_in_it(keeping: Keeping, tmp_path: Path) -> None:
    one, other = launch(), launch()
    for rank, told in other.identities.items():
        told["provenance"] = {"host": f"b{rank}", "time": "later"}
    assert golden_bytes(golden_of(one, keeping)) == golden_bytes(golden_of(other, keeping))
    (tmp_path / "a.arrows").write_bytes(golden_bytes(golden_of(one, keeping)))
    read = read_golden(tmp_path / "a.arrows")
    assert golden_bytes(read) == golden_bytes(golden_of(one, keeping))
    assert as_launch(read).traces[2].content == golden_of(one, keeping).traces[2].content or keeping is FULL


def test_every_cause_that_launches_can_differ_by_has_words_for_goldens() -> None:
    not_reached = {"missing-rank", "recomputation", "thread-count"}  # another identity, or of twins alone
    assert BETWEEN_LAUNCHES.keys() - CHANGED.keys() == not_reached
    assert {*BY_PHASE.values()} <= CHANGED.keys()


@given(
    at=st.sampled_from(ROWS), level=st.sampled_from(["step", "full"]), kind=st.sampled_from(["value", "spec", "gone"])
)
def test_any_change_is_told_in_words(at: tuple[int, int], level: str, kind: str) -> None:
    keeping = replace(STEP, level=level)
    rank, number = at
    rows = [*CLEAN[rank]]
    row = rows[number]
    rows[number] = replace(row, spec="int8[3]") if kind == "spec" else replace(row, content="changed")
    other = launch({**CLEAN, rank: rows[:number] + rows[number + 1 :] if kind == "gone" else rows})
    found = difference(golden_of(launch(), keeping), other, keeping, golden_of(other, keeping))
    if found is None:
        assert rows[number].phase == "rng"
        return
    told = found.finding(" since commit a (now commit b)")
    assert (told.witness, told.launches) == ("golden", (0,))
    assert "golden.accept=true" in told.advice
    assert "since commit a (now commit b)" in told.advice
    assert "launch -1" not in told.message
    assert "{" not in told.title + told.message + told.advice


# Files and verdicts


class Check:
    """A check of one training against a folder of goldens, without its worlds."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.goldens = root / "goldens"
        self.environ: dict[str, str] = {}
        self.ignore: list[str] = []
        self.allow: list[str] = []
        self.level = options.get("level", GoldenLevel.step)

    def __call__(self, *launches: Launch, accept: bool = False) -> Judgement:
        golden = GoldenConfig(path=str(self.goldens), level=self.level, accept=accept)
        config = CheckConfig(
            golden=golden, judge=JudgeConfig(ignore=self.ignore), compare=CompareRules(allow=self.allow)
        )
        told = Invocation(command="check", overrides=("nproc=3", f"golden.path={self.goldens}"))
        run = RunFolder(self.root / "run")
        run.path.mkdir(exist_ok=True)
        judged = judge(launches, Rules(ignore=tuple(self.ignore), allow=tuple(self.allow)))
        return hold_to_golden(judged, launches, Asked(config=config, invocation=told, run=run, environ=self.environ))

    def state(self, *launches: Launch, accept: bool = False) -> tuple[str, Verdict]:
        judged = self(*launches, accept=accept)
        return outcome(judged).state, judged.verdict

    @property
    def files(self) -> list[str]:
        return sorted(file.name for file in self.goldens.iterdir()) if self.goldens.exists() else []


def outcome(judged: Judgement) -> GoldenOutcome:
    assert judged.golden is not None
    return judged.golden


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return Check(tmp_path)


OTHER = {rank: from_step(rows, 2, "grad_local") for rank, rows in CLEAN.items()}


def test_created_then_matched_then_changed_then_accepted_then_matched(check: Check) -> None:
    created = check(launch())
    assert (outcome(created).state, created.verdict) == ("created", Verdict.NOT_JUDGED)
    assert created.problems == [outcome(created).told]
    assert len(check.files) == 1
    assert check.files[0] == f"{created.identity[:16]}.arrows"
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)

    judged = check(launch(OTHER))
    assert (outcome(judged).state, judged.verdict) == ("changed", Verdict.DIVERGED)
    (found,) = judged.findings
    assert (found.witness, found.launches, found.step, found.phase) == ("golden", (0,), 2, "grad_local")
    assert found.cause == "backward-operator"
    assert outcome(judged).accept.endswith("golden.accept=true")
    assert outcome(judged).obtained == str(check.goldens / f"{created.identity[:16]}.obtained.arrows")
    assert len(check.files) == 2

    assert check.state(launch(OTHER), accept=True) == ("accepted", Verdict.NOT_JUDGED)
    assert check.state(launch(OTHER)) == ("matched", Verdict.REPRODUCIBLE)
    assert len(check.files) == 1, "what was obtained goes once it is the golden"
    assert check.state(launch()) == ("changed", Verdict.DIVERGED)


def test_accepting_what_matches_writes_nothing(check: Check) -> None:
    check(launch())
    (file,) = check.goldens.iterdir()
    before = file.stat()
    assert check.state(launch(), accept=True) == ("matched", Verdict.REPRODUCIBLE)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("moved", "field"),
    [
        ({"experiment__seed": 1}, "experiment.seed"),
        ({"software__torch": "2.14.0"}, "software.torch"),
        ({"hardware__cpu": "another cpu"}, "hardware.cpu"),
    ],
)
def test_another_identity_makes_it_stale_and_names_the_field(check: Check, moved: dict[str, Any], field: str) -> None:
    check(launch())
    judged = check(launch(OTHER, **moved))
    assert (outcome(judged).state, judged.verdict) == ("stale", Verdict.NOT_JUDGED)
    assert [one.field for one in outcome(judged).moved] == [field]
    (golden,) = [file for file in check.files if "obtained" not in file]
    assert outcome(judged).file == str(check.goldens / golden)
    assert outcome(judged).obtained == str(check.goldens / f"{judged.identity[:16]}.obtained.arrows")
    assert field.rpartition(".")[2] in judged.problems[0]
    assert not judged.findings


def test_another_world_size_makes_it_stale(check: Check) -> None:
    check(launch())
    judged = check(launch(ranks(replace(SCRIPT, world_size=2))))
    assert (outcome(judged).state, judged.verdict) == ("stale", Verdict.NOT_JUDGED)
    assert "world size 3 against 2 (golden against now)" in judged.problems[0]


def test_goldens_of_several_stacks_lie_side_by_side(check: Check) -> None:
    newer: dict[str, Any] = {"software__torch": "2.14.0"}
    check(launch())
    assert check.state(launch(OTHER, **newer), accept=True) == ("accepted", Verdict.NOT_JUDGED)
    assert len(check.files) == 2
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)
    judged = check(launch(OTHER, **newer))
    assert (outcome(judged).state, judged.verdict) == ("matched", Verdict.REPRODUCIBLE)
    assert len(outcome(judged).unused) == 1
    assert any(note.startswith("unused: 1 other golden") for note in judged.notes)
    assert check.state(launch(**newer)) == ("changed", Verdict.DIVERGED)


def test_a_field_that_may_differ_is_no_reason_not_to_judge(check: Check) -> None:
    check(launch())
    check.allow = ["software.torch"]
    assert check.state(launch(software__torch="2.14.0")) == ("matched", Verdict.REPRODUCIBLE)
    assert check.state(launch(OTHER, software__torch="2.14.0")) == ("changed", Verdict.DIVERGED)
    assert check.state(launch(software__torch="2.14.0", experiment__seed=1)) == ("stale", Verdict.NOT_JUDGED)


def test_another_list_of_what_is_ignored_makes_it_stale(check: Check) -> None:
    check(launch())
    check.ignore = ["*.bias"]
    judged = check(launch())
    assert (outcome(judged).state, judged.verdict) == ("stale", Verdict.NOT_JUDGED)
    assert "judge.ignore" in judged.problems[0]
    assert check.state(launch(), accept=True) == ("accepted", Verdict.NOT_JUDGED)
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)
    assert len(check.files) == 1


def test_in_full_what_is_ignored_may_change(tmp_path: Path) -> None:
    check = Check(tmp_path, level=GoldenLevel.full)
    check(launch())
    check.ignore = ["*.bias"]
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)


def test_in_full_the_name_is_told(tmp_path: Path) -> None:
    check = Check(tmp_path, level=GoldenLevel.full)
    check(launch())
    judged = check(launch({**CLEAN, 1: changed(CLEAN[1], step=2, phase="grad_local", name="conv.bias")}))
    (found,) = judged.findings
    assert (found.step, found.ranks, found.phase, found.name) == (2, (1,), "grad_local", "conv.bias")
    assert "golden" not in found.message or "launch -1" not in found.message


@pytest.mark.parametrize("level", list(GoldenLevel))
def test_a_golden_is_compared_at_the_level_that_it_has(tmp_path: Path, level: GoldenLevel) -> None:
    check = Check(tmp_path, level=level)
    check(launch())
    check.level = next(one for one in GoldenLevel if one is not level)
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)
    assert check.state(launch(OTHER)) == ("changed", Verdict.DIVERGED)


def test_moved_copied_and_read_only_they_still_work(check: Check) -> None:
    check(launch())
    moved = check.root / "elsewhere"
    check.goldens.rename(moved)
    (file,) = moved.iterdir()
    file.rename(moved / "another name.arrows")
    check.goldens = moved
    for entry in (moved / "another name.arrows", moved):
        entry.chmod(entry.stat().st_mode & 0o555)
    try:
        assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)
        assert check.state(launch(OTHER)) == ("changed", Verdict.DIVERGED)
    finally:
        moved.chmod(0o755)


def test_a_damaged_golden_is_not_judged(check: Check) -> None:
    check(launch())
    (file,) = check.goldens.iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), 97):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        state, verdict = check.state(launch())
        assert (state, verdict) == ("unreadable", Verdict.NOT_JUDGED), at
        file.write_bytes(whole[:at])
        assert check.state(launch()) == ("unreadable", Verdict.NOT_JUDGED), at
    assert check.state(launch(), accept=True) == ("accepted", Verdict.NOT_JUDGED)
    assert file.read_bytes() == whole


def test_a_newer_golden_is_not_judged(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_repro.trace.golden.GOLDEN_SCHEMA", 2)
    check(launch())
    monkeypatch.undo()
    judged = check(launch())
    assert (outcome(judged).state, judged.verdict) == ("unreadable", Verdict.NOT_JUDGED)
    assert "newer version" in judged.problems[0]


def test_in_ci_none_is_made_and_what_was_obtained_stays_in_the_run(check: Check) -> None:
    check.environ = {"CI": "true"}
    judged = check(launch())
    assert (outcome(judged).state, judged.verdict) == ("missing", Verdict.NOT_JUDGED)
    assert "none is made in CI" in judged.problems[0]
    assert check.files == []
    check.environ = {}
    check(launch())
    check.environ = {"CI": "1"}
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)
    judged = check(launch(OTHER))
    assert outcome(judged).obtained == str(check.root / "run" / "golden.obtained.arrows")
    assert len(check.files) == 1


def test_a_launch_that_failed_neither_makes_nor_matches_one(check: Check) -> None:
    whole = launch()
    failed = replace(whole, problems=["launch 0 failed: rank 1"])
    assert check.state(failed) == ("unjudged", Verdict.NOT_JUDGED)
    assert check.files == []
    check(whole)
    assert check.state(failed, accept=True) == ("unjudged", Verdict.NOT_JUDGED)
    cut = replace(whole, traces={0: whole.traces[0], 1: replace(whole.traces[1], damage="cut", end=None)})
    assert check.state(cut) == ("unjudged", Verdict.NOT_JUDGED)
    assert check.state() == ("unjudged", Verdict.NOT_JUDGED)


def test_a_launch_with_a_broken_invariant_makes_none(check: Check) -> None:
    broken = launch({**CLEAN, 1: changed(CLEAN[1], step=2, phase="param", name="conv.bias")})
    judged = check(broken)
    assert (outcome(judged).state, judged.verdict) == ("missing", Verdict.DIVERGED)
    assert check.files == []
    check(launch())
    (file,) = check.goldens.iterdir()
    before = file.read_bytes()
    judged = check(broken, accept=True)
    assert (outcome(judged).state, judged.verdict) == ("changed", Verdict.DIVERGED)
    assert [found.witness for found in judged.findings] == ["ranks", "golden"]
    assert file.read_bytes() == before


def test_launches_that_differ_make_none(check: Check) -> None:
    judged = check(launch(), replace(launch(OTHER), index=1, path=Path("launch-1")))
    assert (outcome(judged).state, judged.verdict) == ("missing", Verdict.DIVERGED)
    assert check.files == []


def test_two_equal_launches_are_held_against_it_too(check: Check) -> None:
    two = launch(), replace(launch(), index=1, path=Path("launch-1"))
    assert check.state(*two) == ("created", Verdict.NOT_JUDGED)
    assert check.state(*two) == ("matched", Verdict.REPRODUCIBLE)


def test_what_other_probes_saw_is_stale_unless_it_is_equal(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    check(launch())
    monkeypatch.setattr("ddp_repro.golden.asking.observer_digest", lambda: "another")
    assert check.state(launch()) == ("matched", Verdict.REPRODUCIBLE)
    judged = check(launch(OTHER))
    assert (outcome(judged).state, judged.verdict) == ("stale", Verdict.NOT_JUDGED)
    assert [one.field for one in outcome(judged).moved] == ["ddp_repro"]


def test_a_change_of_code_is_told(check: Check) -> None:
    def at(commit: str, written: Ranks = CLEAN) -> Launch:
        made = launch(written)
        made.identities[0]["provenance"] = {"git_commit": commit * 40, "git_diff": None, "workload_source": "s"}
        return made

    check(at("a"))
    judged = check(at("b", OTHER))
    assert "made at commit aaaaaaaaaa, and this is commit bbbbbbbbbb" in outcome(judged).told
    assert "since commit aaaaaaaaaa (now commit bbbbbbbbbb)" in judged.findings[0].advice
    assert outcome(judged).code[0] == {"git_commit": "a" * 40, "git_diff": None, "workload_source": "s"}


def test_a_folder_that_cannot_be_one_is_said(check: Check) -> None:
    check.goldens.write_text("a file where the folder should be")
    assert check.state(launch()) == ("unreadable", Verdict.NOT_JUDGED)
    assert check.state(launch(), accept=True) == ("unreadable", Verdict.NOT_JUDGED)
    assert check.goldens.read_text() == "a file where the folder should be"


def test_a_golden_that_cannot_be_written_is_said(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ReproError("cannot write it: Read-only file system")

    monkeypatch.setattr("ddp_repro.golden.holding.write_golden", refuse)
    judged = check(launch())
    assert (outcome(judged).state, judged.verdict) == ("missing", Verdict.NOT_JUDGED)
    assert "it was not kept: cannot write it: Read-only file system" in judged.problems[0]


def test_the_outcome_is_plain_json(check: Check) -> None:
    check(launch())
    judged = check(launch(experiment__seed=1))
    told = verdict_document(judged, Context(run=RunFolder(check.root), command="c"))["golden"]
    assert json.loads(json.dumps(told)) == told
    assert told["moved"] == [{"field": "experiment.seed", "values": [0, 1], "allowed": False}]
    assert set(told) == {
        "state", "told", "path", "level", "file", "obtained", "accept", "moved", "unused", "code",
    }  # fmt: skip
