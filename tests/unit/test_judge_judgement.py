from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.errors import Verdict
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.judgement import ONE_LAUNCH, Rules, judge
from tests.unit.synthetic import (
    Ranks,
    Row,
    Script,
    Writing,
    changed,
    from_step,
    identity,
    launch_of,
    ranks,
    write_launch,
)

SCRIPT = Script(world_size=3, workers=2)
CLEAN = ranks(SCRIPT)
ODD = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="grad_local", name="conv.bias")}


def judged(root: Path, *written: Ranks, rules: Rules | None = None, **writing: Writing) -> Judgement:
    """Write launches to files, load and judge them; ``writing`` has how launch ``l<i>`` is written."""
    launches = [write_launch(root, at, one, writing.get(f"l{at}")) for at, one in enumerate(written)]
    return judge(launches, rules or Rules(reproduce="the command"))


def test_equal_launches_without_a_broken_invariant_are_reproducible(tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, CLEAN, CLEAN)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert (found.classes, found.findings, found.problems) == ([[0, 1, 2]], [], [])
    assert found.observations == 3 * sum(map(len, CLEAN.values()))
    assert found.folders == {at: str(tmp_path / f"launch-{at}") for at in range(3)}
    assert found.identity


def test_launches_that_differ_diverge(tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, ODD)
    assert (found.verdict, found.classes) == (Verdict.DIVERGED, [[0], [1]])
    (one,) = found.findings
    assert (one.witness, one.cause, one.launches) == ("launches", "backward-operator", (0, 1))
    assert (one.step, one.ranks, one.phase, one.name) == (2, (1,), "grad_local", "conv.bias")
    assert one.reproduce == "the command"


def test_the_launch_that_is_alone_is_named(tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, CLEAN, ODD)
    assert found.classes == [[0, 1], [2]]
    assert found.findings[0].message.startswith("launch 2 is alone (launches 0 and 1 are equal in bits)")
    assert found.findings[0].launches == (0, 2)


def test_the_first_launch_can_be_the_one_that_is_alone(tmp_path: Path) -> None:
    found = judged(tmp_path, ODD, CLEAN, CLEAN)
    assert found.findings[0].message.startswith("launch 0 is alone")
    assert found.findings[0].launches == (0, 1)


def test_launches_that_all_differ_in_the_same_way_are_one_finding(tmp_path: Path) -> None:
    launches = [
        {**CLEAN, 1: changed(CLEAN[1], word, step=2, phase="grad_local", name="conv.bias")} for word in ("a", "b", "c")
    ]
    found = judged(tmp_path, *launches)
    assert found.classes == [[0], [1], [2]]
    (one,) = found.findings
    assert one.launches == (0, 1, 2)


def test_a_broken_invariant_of_every_launch_is_told_once(tmp_path: Path) -> None:
    broken = ranks(replace(SCRIPT, sampler_seed=lambda rank: rank))
    found = judged(tmp_path, broken, broken)
    assert (found.verdict, found.classes) == (Verdict.DIVERGED, [[0, 1]])
    (one,) = found.findings
    assert (one.cause, one.launches) == ("shards-overlap", (0, 1))


def test_a_warning_alone_is_reproducible(tmp_path: Path) -> None:
    noisy = ranks(replace(SCRIPT, dropout=lambda rank: "of all"))
    found = judged(tmp_path, noisy, noisy)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert [(one.severity, one.cause) for one in found.findings] == [("warning", "correlated-noise")]


def test_errors_come_before_warnings(tmp_path: Path) -> None:
    noisy = ranks(replace(SCRIPT, dropout=lambda rank: "of all"))
    noisy[2] = changed(noisy[2], step=3, phase="param", name="conv.bias")
    found = judged(tmp_path, noisy, noisy)
    assert [one.severity for one in found.findings] == ["error", "warning"]


def test_one_launch_is_not_judged_but_its_invariants_are(tmp_path: Path) -> None:
    found = judged(tmp_path / "clean", CLEAN)
    assert (found.verdict, found.problems) == (Verdict.NOT_JUDGED, [ONE_LAUNCH])
    broken = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="param", name="conv.bias")}
    found = judged(tmp_path / "broken", broken)
    assert (found.verdict, found.findings[0].witness) == (Verdict.DIVERGED, "ranks")


def test_no_launch_at_all_is_not_judged() -> None:
    found = judge([], Rules())
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.problems == ["no launches were given"]


def test_fewer_launches_than_were_asked_for_are_not_judged(tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, CLEAN, rules=Rules(expected=3))
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.problems == ["only 2 of 3 launches were made"]


@pytest.mark.parametrize(
    ("writing", "told"),
    [
        (Writing(outcome="failed"), "failed"),
        (Writing(outcome="hung"), "hung"),
        (Writing(outcome="interrupted"), "interrupted"),
        (Writing(end=None), "cut"),
        (Writing(end="failed"), "closed as 'failed'"),
        (Writing(world_size=4), "rank 3"),
        (Writing(capture="off"), "not observed alike"),
    ],
)
def test_a_launch_that_is_not_whole_is_not_judged(tmp_path: Path, writing: Writing, told: str) -> None:
    found = judged(tmp_path, CLEAN, CLEAN, l1=writing)
    assert found.verdict is Verdict.NOT_JUDGED
    assert any(told in problem for problem in found.problems), found.problems


def test_a_cut_trace_is_compared_as_far_as_it_is_whole(tmp_path: Path) -> None:
    cut = {rank: [row for row in rows if row.step < 3] for rank, rows in ODD.items()}
    found = judged(tmp_path, CLEAN, cut, l1=Writing(end=None, outcome="failed"))
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.classes == []
    assert found.findings == [], "step 2 is the last that is there, and may not be whole"
    early = {**cut, 0: changed(cut[0], step=1, phase="loss")}
    found = judged(tmp_path / "again", CLEAN, early, l1=Writing(end=None, outcome="failed"))
    assert found.verdict is Verdict.NOT_JUDGED
    assert [(one.cause, one.step, one.ranks) for one in found.findings] == [("forward-operator", 1, (0,))]


def test_a_damaged_trace_is_never_judged(tmp_path: Path) -> None:
    for index in range(2):
        write_launch(tmp_path, index, CLEAN)
    trace = tmp_path / "launch-1" / "rank-2.arrows"
    data = bytearray(trace.read_bytes())
    for at in range(0, len(data), max(1, len(data) // 40)):
        damaged = bytearray(data)
        damaged[at] ^= 4
        trace.write_bytes(damaged)
        found = judge([load(tmp_path, index) for index in range(2)], Rules())
        assert found.verdict is Verdict.NOT_JUDGED, f"byte {at}"
        trace.write_bytes(data[:at])
        found = judge([load(tmp_path, index) for index in range(2)], Rules())
        assert found.verdict is Verdict.NOT_JUDGED, f"cut at {at}"


def load(root: Path, index: int) -> Any:
    from ddp_repro.trace.launch import load_launch  # noqa: PLC0415
    from ddp_repro.trace.layout import LaunchFolder  # noqa: PLC0415

    return load_launch(LaunchFolder(root / f"launch-{index}"))


@pytest.mark.parametrize("phases", [(), ("init",), ("init", "data", "rng")])
def test_where_no_training_was_observed_nothing_is_concluded(tmp_path: Path, phases: tuple[str, ...]) -> None:
    blind = {rank: [row for row in rows if row.phase in phases] for rank, rows in CLEAN.items()}
    found = judged(tmp_path, blind, blind)
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.problems[0] == "nothing was observed in launch 0: no loss, gradient or parameter of any step"
    off = judged(tmp_path / "off", blind, blind, l0=Writing(capture="off"), l1=Writing(capture="off"))
    assert off.problems == [
        "nothing was observed in launch 0: capture=off",
        "nothing was observed in launch 1: capture=off",
    ]


def test_one_blind_rank_is_enough(tmp_path: Path) -> None:
    blind = {**CLEAN, 2: [row for row in CLEAN[2] if row.phase == "data"]}
    found = judged(tmp_path, blind, blind)
    assert found.verdict is Verdict.NOT_JUDGED
    assert "nothing was observed in launch 0 on rank 2" in found.problems[0]


def test_modules_and_operators_that_were_not_observed_are_noted(tmp_path: Path) -> None:
    for level in ("module", "op"):
        writing: dict[str, Any] = {f"l{at}": Writing(capture=level) for at in range(2)}
        found = judged(tmp_path / level, CLEAN, CLEAN, **writing)
        assert found.verdict is Verdict.REPRODUCIBLE
        assert any(f"capture={level}, and no module or operator was observed" in note for note in found.notes)
        full = [Row(3, "op", "a/aten::mm#0.in", "float32[2] at a.py:1", "a")]
        full += [Row(step, "op", "capture.limit_mb", "text", "") for step in (5, 3)]
        seen = {**CLEAN, 1: [*CLEAN[1], *full]}
        found = judged(tmp_path / f"{level} full", seen, seen, **writing)
        assert found.verdict is Verdict.REPRODUCIBLE
        assert not any("no module or operator was observed" in note for note in found.notes)
        assert "capture.limit_mb was used up in step 3: no modules and operators were observed any more" in found.notes
    assert not any("capture" in note for note in judged(tmp_path / "step", CLEAN, CLEAN).notes)


def test_other_identities_are_not_comparable_and_never_diverged(tmp_path: Path) -> None:
    two = ranks(Script(world_size=2))
    four = ranks(Script(world_size=4))
    found = judged(tmp_path, two, four)
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.problems == ["the identities differ: world size 2 against 4"]
    assert [(one.witness, one.cause, one.name) for one in found.findings] == [
        ("identity", "not-comparable", "experiment.world_size")
    ]
    assert [(one.field, one.values) for one in found.identity_differences] == [("experiment.world_size", [2, 4])]


def test_an_allowed_difference_is_judged_and_carried(tmp_path: Path) -> None:
    other = Writing(identities=dict.fromkeys(range(3), identity(experiment__world_size=3, software__torch="2.14.0")))
    rules = Rules(allow=("software.torch", "software.jax"))
    found = judged(tmp_path, CLEAN, CLEAN, rules=rules, l1=other)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert [(one.field, one.allowed) for one in found.identity_differences] == [("software.torch", True)]
    assert "allowed to differ: torch 2.13.0 against 2.14.0" in found.notes
    assert "compare.allow names software.jax, which no identity has" in found.notes
    assert judged(tmp_path / "again", CLEAN, CLEAN, l1=other).verdict is Verdict.NOT_JUDGED


def test_rows_in_another_order_are_a_note(tmp_path: Path) -> None:
    other = {rank: list(rows) for rank, rows in CLEAN.items()}
    at = next(at for at, row in enumerate(CLEAN[0]) if (row.step, row.phase) == (2, "grad_local"))
    other[0][at], other[0][at + 1] = other[0][at + 1], other[0][at]
    found = judged(tmp_path, CLEAN, other)
    assert (found.verdict, found.classes) == (Verdict.REPRODUCIBLE, [[0, 1]])
    assert found.notes == ["launch 1 observed 1 row in another order than launch 0, all equal"]


def test_notes_of_all_launches_are_told_once(tmp_path: Path) -> None:
    padded = ranks(Script(world_size=3, length=25))
    found = judged(tmp_path, padded, padded)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert found.notes == ["DistributedSampler[0]: 2 samples a pass delivered twice to fill up the shards"]


def test_a_launch_is_not_compared_with_itself(tmp_path: Path) -> None:
    one = write_launch(tmp_path, 0, CLEAN)
    found = judge([one, one], Rules())
    assert found.verdict is Verdict.NOT_JUDGED
    assert "was given 2 times" in found.problems[0]


def test_launches_of_runs_that_are_compared_are_counted_anew(tmp_path: Path) -> None:
    launches = [write_launch(tmp_path / name, 0, CLEAN) for name in "ab"]
    found = judge(launches, Rules())
    assert (found.verdict, found.classes) == (Verdict.REPRODUCIBLE, [[0, 1]])
    assert found.folders == {0: str(tmp_path / "a" / "launch-0"), 1: str(tmp_path / "b" / "launch-0")}
    cut = write_launch(tmp_path / "c", 0, CLEAN, Writing(outcome="hung"))
    found = judge([launches[0], cut], Rules())
    assert str(tmp_path / "c" / "launch-0") in found.problems[0]


def test_a_missing_rank_without_a_problem_is_one() -> None:
    launch = launch_of(CLEAN)
    partial = replace(launch, index=1, path=Path("launch-1"), traces={0: launch.traces[0], 1: launch.traces[1]})
    found = judge([launch, partial], Rules())
    assert found.verdict is Verdict.NOT_JUDGED
    assert "launch 1: the trace of rank 2 is missing" in found.problems


def test_propagated_differences_are_one_finding(tmp_path: Path) -> None:
    other = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in CLEAN.items()}
    other[1] = changed(other[1], step=2, phase="grad_local", name="conv.bias")
    found = judged(tmp_path, CLEAN, other)
    assert [(one.ranks, one.phase, one.name) for one in found.findings] == [((1,), "grad_local", "conv.bias")]


def test_phases_that_nobody_observed_are_told(tmp_path: Path) -> None:
    partly = {rank: [row for row in rows if not row.phase.startswith("grad")] for rank, rows in CLEAN.items()}
    found = judged(tmp_path, partly, partly)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert "never observed, so not judged: grad_local, grad_reduced and grad_step" in found.notes
    assert not any("never observed" in note for note in judged(tmp_path / "whole", CLEAN, CLEAN).notes)


def test_what_could_not_be_seen_in_a_batch_is_said(tmp_path: Path) -> None:
    rows = {
        rank: [replace(row, spec="opaque Graph") if row.name.endswith("batch[1]") else row for row in rows]
        for rank, rows in ranks(Script(world_size=2)).items()
    }
    found = judge([write_launch(tmp_path, at, rows) for at in range(2)], Rules())
    assert found.verdict is Verdict.REPRODUCIBLE
    (note,) = [note for note in found.notes if note.startswith("DistributedSampler[0]")]
    assert "of type Graph the content was not compared" in note


@pytest.mark.parametrize(("world_size", "told"), [(1, "one rank: "), (2, "two ranks hide "), (3, "")])
def test_a_world_too_small_to_show_faults_of_reductions_is_noted(world_size: int, told: str, tmp_path: Path) -> None:
    rows = ranks(Script(world_size=world_size))
    found = judge([write_launch(tmp_path, at, rows) for at in range(2)], Rules())
    assert found.verdict is Verdict.REPRODUCIBLE
    notes = [note for note in found.notes if "use three or more" in note]
    assert [note.startswith(told) for note in notes] == [True] * bool(told)


def test_an_end_that_was_told_and_is_gone_is_missed(tmp_path: Path) -> None:
    found = judged(tmp_path / "gone", CLEAN, CLEAN, l0=Writing(end_told=True))
    assert found.verdict is Verdict.NOT_JUDGED
    assert found.problems == [
        f"launch 0: ranks {min(CLEAN)} to {max(CLEAN)} did not say what training ended with (rank-<r>.final.json)"
    ]
    told = Writing(end_told=True, finals={rank: {"param": {"a": "00"}} for rank in CLEAN})
    assert judged(tmp_path / "there", CLEAN, CLEAN, l0=told, l1=told).verdict is Verdict.REPRODUCIBLE


def test_an_end_that_one_launch_does_not_tell_is_no_difference(tmp_path: Path) -> None:
    told = Writing(finals={rank: {"param": {"a": "00"}} for rank in CLEAN})
    found = judged(tmp_path, CLEAN, CLEAN, l0=told)
    assert (found.verdict, found.findings, found.classes) == (Verdict.NOT_JUDGED, [], [[0, 1]])
    assert "did not say what training ended with" in found.problems[0]
