from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.errors import Verdict
from ddp_repro.judge.comparable import as_twins
from ddp_repro.judge.divergence import compare_launches
from ddp_repro.judge.findings import Finding, Judgement, Variant
from ddp_repro.judge.judgement import Rules, judge
from tests.unit.synthetic import (
    Ranks,
    Row,
    Rows,
    Script,
    Writing,
    changed,
    delivery,
    facts,
    from_step,
    identity,
    launch_of,
    ranks,
    write_launch,
)

FIELD = "experiment.config.data.batch_size"  # stands for whatever the variants override
ONE = Variant(overrides=("thing=1",), launches=(0,), allow=(FIELD,))
OTHER = Variant(overrides=("thing=2",), launches=(1,), allow=(FIELD,))
TRAINING = ranks(Script(world_size=3, evaluate=False))
LOADER = "DistributedSampler[0]"


def judged(root: Path, one: Ranks, other: Ranks, *variants: Variant, **writing: Writing) -> Judgement:
    launches = [
        write_launch(root, number, written, writing.get(f"l{number}", _writing(written, number)))
        for number, written in enumerate([one, other])
    ]
    return judge(launches, Rules(variants=variants or (ONE, OTHER)))


def _writing(written: Ranks, number: int, **more: Any) -> Writing:
    told = identity(experiment__config__data__batch_size=number, experiment__world_size=len(written))
    return Writing(identities=dict.fromkeys(written, told), **more)


def twin(found: Judgement) -> Finding:
    (one,) = [one for one in found.findings if one.witness == "twins"]
    return one


def evaluation(
    step: int, loader: str, *, number: int = 0, state: str = "", batches: int = 2, ends: bool = True
) -> Rows:
    """Return an evaluation pass with the buffers its forwards begin with; ``state`` is that of torch's generator."""
    rows = facts(step, loader, {"pass": number, "length": 8, "shuffle": 0, "drop_last": 0, "num_workers": 0})
    for at in range(batches):
        rows += delivery(step, loader, range(4 * at, 4 * at + 4), [])
        rows.append(Row(step, "rng", "torch", "state", state))
        rows.append(Row(step, "data", f"{loader}.batch[0]", "float32[4,8]", f"held out {at}"))
        rows.append(Row(step, "buffer", "norm.mean", "float32[4] replicated", f"mean {step}"))
    return [*rows, Row(step, "data", f"{loader}.end", "int64[]", str(batches), batches)] if ends else rows


def before_step(rows: Rows, step: int, inserted: Rows) -> Rows:
    """Return the rows with others before the first of ``step``: after what the step before left."""
    at = next((at for at, row in enumerate(rows) if row.step >= step), len(rows))
    return [*rows[:at], *inserted, *rows[at:]]


def state_at(rows: Rows, step: int) -> str:
    return next((row.content for row in rows if row.step >= step and row.name == "torch"), "the last")


def evaluated(written: Ranks, *steps: int, loader: str = "SequentialSampler[1]", **options: Any) -> Ranks:
    """Return the training with a clean evaluation before each of the steps: the state is that at the next batch."""
    made = dict(written)
    for number, step in enumerate(steps):
        for rank, rows in made.items():
            inserted = evaluation(step, loader, number=number, state=state_at(written[rank], step), **options)
            made[rank] = before_step(rows, step, inserted)
    return made


@pytest.mark.parametrize(
    ("steps", "others"), [((), (2, 4)), ((2,), ()), ((2, 4), (2,)), ((1, 3, 5), (3,)), ((4,), (2, 4)), ((3,), (3,))]
)
@pytest.mark.parametrize("ends", [True, False])
def test_evaluating_at_other_steps_is_no_difference(
    steps: tuple[int, ...], others: tuple[int, ...], ends: bool, tmp_path: Path
) -> None:
    found = judged(tmp_path, evaluated(TRAINING, *steps, ends=ends), evaluated(TRAINING, *others, ends=ends))
    assert found.verdict is Verdict.REPRODUCIBLE, found.findings
    assert found.classes == [[0, 1]]
    told = [note for note in found.notes if "compared without" in note]
    assert bool(told) == (steps != others)
    assert all("of evaluation passes that not both made alike" in note for note in told)


def test_what_was_left_out_is_told_with_its_rows_and_both_overrides(tmp_path: Path) -> None:
    found = judged(tmp_path, TRAINING, evaluated(TRAINING, 2))
    passes = sum(len([row for row in evaluation(2, "X[0]") if row.phase != "buffer"]) for _ in TRAINING)
    (note,) = [note for note in found.notes if "compared without" in note]
    assert note == (
        f"launch 0 (thing=1) and launch 1 (thing=2): compared without {passes} rows of evaluation passes that not both "
        f"made alike and {2 * len(TRAINING)} rows at the entry of forwards that only one made"
    )


def test_a_loader_that_is_met_first_on_one_side_does_not_rename_the_training(tmp_path: Path) -> None:
    moved = {
        rank: [replace(row, name=row.name.replace(LOADER, "DistributedSampler[1]")) for row in rows]
        for rank, rows in TRAINING.items()
    }
    early = evaluated(moved, 0, loader="DistributedSampler[0]")
    assert judged(tmp_path / "clean", TRAINING, early).verdict is Verdict.REPRODUCIBLE
    planted = {**early, 1: changed(early[1], step=1, phase="data", name="DistributedSampler[1].batch[0]")}
    found = twin(judged(tmp_path / "planted", TRAINING, planted))
    assert (found.step, found.phase, found.name, found.ranks) == (1, "data", f"{LOADER}.batch[0]", (1,))


def test_evaluating_over_the_training_loader_moves_the_numbers_of_its_passes_only(tmp_path: Path) -> None:
    def counted_on(rows: Rows) -> Rows:
        is_pass = [row.name == f"{LOADER}.pass" for row in rows]
        later = [
            replace(row, content="2", value=2.0) if now and row.value == 1 else row
            for row, now in zip(rows, is_pass, strict=True)
        ]
        at = next(at for at, row in enumerate(later) if row.name == f"{LOADER}.end") + 1
        return [*later[:at], *evaluation(2, LOADER, number=1, state=state_at(rows, 2)), *later[at:]]

    between = {rank: counted_on(rows) for rank, rows in ranks(Script(world_size=3, length=24, evaluate=False)).items()}
    assert judged(tmp_path, TRAINING, between).verdict is Verdict.REPRODUCIBLE


def test_an_evaluation_that_draws_from_the_training_is_found_at_the_next_batch(tmp_path: Path) -> None:
    drawn = evaluated(TRAINING, 2)
    for rank, rows in drawn.items():
        drawn[rank] = [
            replace(row, content=f"moved {row.content}") if row.name == "torch" and row.step >= 2 else row
            for row in rows
        ]
    found = twin(judged(tmp_path, TRAINING, drawn))
    assert (found.cause, found.step, found.ranks, found.phase, found.name) == (
        "rng-draws",
        2,
        (0, 1, 2),
        "rng",
        "torch",
    )
    assert found.message.startswith("launch 0 (thing=1) and launch 1 (thing=2): ")
    assert "it was drawn from around the evaluation over SequentialSampler[1]" in found.message


def test_draws_of_one_rank_alone_are_found_on_that_rank(tmp_path: Path) -> None:
    """Without a loader: nothing of who drew can be seen, but the batch that was drawn in the other state is."""

    def moved(row: Row) -> Row:
        is_concerned = row.step >= 3 and row.name in ("torch", f"{LOADER}.batch[0]")
        return replace(row, content=f"moved {row.content}") if is_concerned else row

    planted = {**TRAINING, 0: [moved(row) for row in from_step(TRAINING[0], 3, "loss")]}
    for rank in (1, 2):
        planted[rank] = from_step(TRAINING[rank], 3, "grad_reduced")
    found = twin(judged(tmp_path, TRAINING, planted))
    assert (found.cause, found.step, found.ranks, found.phase, found.name) == ("rng-draws", 3, (0,), "rng", "torch")
    assert "ranks 1 and 2 got the difference through the all-reduce" in found.message


def test_a_training_that_keeps_its_batches_first_is_not_taken_for_an_evaluation(tmp_path: Path) -> None:
    """All batches are gathered, then trained on: no pass has a loss in it, so none is left out."""

    def gathered(rows: Rows) -> Rows:
        data = [replace(row, step=0) for row in rows if row.phase in ("data", "rng")]
        return [
            *[row for row in rows if row.step < 0],
            *data,
            *[row for row in rows if row.phase not in ("data", "rng", "init")],
        ]

    kept = {rank: gathered(rows) for rank, rows in TRAINING.items()}
    shorter = {**kept, 1: [row for row in kept[1] if not row.name.startswith(LOADER)]}
    assert judged(tmp_path / "clean", kept, kept).verdict is Verdict.REPRODUCIBLE
    assert twin(judged(tmp_path / "planted", kept, shorter)).phase == "data"


@pytest.mark.parametrize("recomputed", ["before the loss", "in the backward"])
def test_forwards_that_only_one_makes_are_left_out(recomputed: str, tmp_path: Path) -> None:
    extra = Row(2, "buffer", "norm.mean", "float32[4] replicated", "mean 2")
    phase = "loss" if recomputed == "before the loss" else "grad_local"
    more = {}
    for rank, rows in TRAINING.items():
        at = next(at for at, row in enumerate(rows) if (row.step, row.phase) == (2, phase))
        more[rank] = [*rows[:at], extra, *rows[at:]]
    found = judged(tmp_path, TRAINING, more)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert any("3 rows at the entry of forwards that only one made" in note for note in found.notes)


def test_an_evaluation_that_changes_buffers_is_found_as_the_next_training_forward_begins(tmp_path: Path) -> None:
    planted = {}
    for rank, rows in evaluated(TRAINING, 3).items():
        entries = [at for at, row in enumerate(rows) if (row.step, row.phase) == (3, "buffer") and "repl" in row.spec]
        planted[rank] = [replace(row, content="moved") if at == entries[-1] else row for at, row in enumerate(rows)]
    found = twin(judged(tmp_path, TRAINING, planted))
    assert (found.cause, found.step, found.phase, found.name) == ("forward-buffers", 3, "buffer", "norm.mean")


def test_workers_are_left_out_where_their_number_differs(tmp_path: Path) -> None:
    without, four = (ranks(Script(world_size=3, workers=workers, evaluate=False)) for workers in (0, 4))
    found = judged(tmp_path / "clean", without, four)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert any("rows of the workers themselves, whose number differs" in note for note in found.notes)
    planted = {**four, 2: changed(four[2], step=1, phase="data", name=f"{LOADER}.batch[1]")}
    assert twin(judged(tmp_path / "planted", without, planted)).ranks == (2,)
    same = {**four, 2: changed(four[2], step=1, phase="rng", name=f"{LOADER}.worker1.numpy.after")}
    assert twin(judged(tmp_path / "as many", four, same)).phase == "rng"


def test_settings_that_are_rows_are_left_out_and_what_they_lead_to_is_not(tmp_path: Path) -> None:
    def set_up(word: str) -> Ranks:
        return {
            rank: [
                *[replace(row, content=word) if row.name == "bucket_layout" else row for row in rows],
                Row(4, "optimizer", "group0.fused", "bool[]", word, 1.0),
            ]
            for rank, rows in TRAINING.items()
        }

    found = judged(tmp_path / "clean", set_up("one"), set_up("other"))
    assert found.verdict is Verdict.REPRODUCIBLE
    assert any("rows that tell a setting" in note for note in found.notes)
    other = {rank: from_step(rows, 1, "grad_reduced") for rank, rows in set_up("other").items()}
    one = twin(judged(tmp_path / "buckets", set_up("one"), other))
    assert (one.cause, one.step, one.phase, one.name) == ("reduction-order", 1, "grad_reduced", "conv.weight")
    assert "the bucket layout differs too" in one.message
    other = {rank: from_step(rows, 1, "param") for rank, rows in set_up("other").items()}
    assert twin(judged(tmp_path / "fused", set_up("one"), other)).cause == "optimizer"
    rate = {rank: changed(rows, step=1, phase="optimizer", name="group0.lr") for rank, rows in set_up("one").items()}
    assert twin(judged(tmp_path / "rate", set_up("one"), rate)).cause == "hyperparameters"


def test_a_backward_that_differs_between_variants_does_not_repeat_the_forward(tmp_path: Path) -> None:
    planted = {rank: from_step(rows, 0, "grad_local") for rank, rows in TRAINING.items()}
    found = twin(judged(tmp_path, TRAINING, planted))
    assert (found.cause, found.step, found.phase, found.name) == ("recomputation", 0, "grad_local", "head.weight")


def test_another_number_of_threads_is_named_as_the_cause(tmp_path: Path) -> None:
    planted = {rank: from_step(rows, 0, "loss") for rank, rows in TRAINING.items()}
    variants = tuple(replace(one, allow=("environment.threads",)) for one in (ONE, OTHER))
    writing = {
        f"l{number}": Writing(
            identities=dict.fromkeys(TRAINING, identity(environment__threads=number + 1, experiment__world_size=3))
        )
        for number in (0, 1)
    }
    found = judged(tmp_path, TRAINING, planted, *variants, **writing)
    assert (twin(found).cause, twin(found).phase) == ("thread-count", "loss")


FINALS = {rank: {"param": {"a": "00", "b": "01"}, "buffer": {"m": f"{rank:02}"}} for rank in TRAINING}
NOTHING: Ranks = {rank: [] for rank in TRAINING}


def _unobserved(root: Path, finals: dict[int, Any], observed: dict[int, Any]) -> Judgement:
    writing = {
        "l0": _writing(TRAINING, 0, finals=observed),
        "l1": _writing(TRAINING, 1, finals=finals, capture="off"),
    }
    return judged(root, TRAINING, NOTHING, **writing)


def test_a_variant_that_was_not_observed_is_judged_by_its_end(tmp_path: Path) -> None:
    found = _unobserved(tmp_path, FINALS, FINALS)
    assert (found.verdict, found.problems, found.classes) == (Verdict.REPRODUCIBLE, [], [[0, 1]])
    assert any("only the final parameters and buffers were compared" in note for note in found.notes)


def test_another_end_of_a_variant_that_was_not_observed_is_found(tmp_path: Path) -> None:
    planted = {**FINALS, 1: {"param": {"a": "00", "b": "ff"}, "buffer": {"m": "01"}}}
    found = _unobserved(tmp_path, planted, FINALS)
    assert (found.verdict, found.classes) == (Verdict.DIVERGED, [[0], [1]])
    one = twin(found)
    assert (one.cause, one.step, one.ranks, one.phase, one.name) == ("other-end", None, (1,), "param", "b")


def _ending(written: Ranks, **changes: Any) -> dict[int, Any]:
    finals = {
        rank: {"param": {"a": "00"}, "buffer": {"m": f"{rank:02}"}, "metric": {"epoch 0": "0.5"}} for rank in written
    }
    return {rank: {**final, **changes.get(f"r{rank}", {})} for rank, final in finals.items()}


def ended(root: Path, one: Ranks, other: Ranks, *finals: dict[int, Any]) -> Judgement:
    sides = enumerate(zip((one, other), finals, strict=True))
    return judged(root, one, other, **{f"l{at}": _writing(rows, at, finals=ends) for at, (rows, ends) in sides})


def test_twins_must_end_alike_in_all_that_both_of_them_have(tmp_path: Path) -> None:
    without = {rank: {**final, "metric": {}} for rank, final in _ending(TRAINING).items()}
    found = ended(tmp_path / "one validates", TRAINING, TRAINING, _ending(TRAINING), without)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert any("3 rows of how ranks ended" in note for note in found.notes)
    other = _ending(TRAINING, r1={"metric": {"epoch 0": "0.6"}})
    one = twin(ended(tmp_path / "other result", TRAINING, TRAINING, _ending(TRAINING), other))
    assert (one.cause, one.phase, one.name, one.ranks) == ("other-end", "metric", "epoch 0", (1,))
    other = _ending(TRAINING, r2={"buffer": {"m": "ff"}})
    one = twin(ended(tmp_path / "other buffer", TRAINING, TRAINING, _ending(TRAINING), other))
    assert (one.cause, one.phase, one.ranks) == ("other-end", "buffer", (2,))


def test_an_evaluation_at_the_end_may_broadcast_buffers_and_change_nothing_else(tmp_path: Path) -> None:
    last = evaluated(TRAINING, 9)
    broadcast = {rank: {"buffer": {"m": "00"}} for rank in TRAINING}
    handed_on = _ending(TRAINING, r1=broadcast[1], r2=broadcast[2])
    assert ended(tmp_path / "clean", TRAINING, last, _ending(TRAINING), handed_on).verdict is Verdict.REPRODUCIBLE
    moved = _ending(TRAINING, r0={"buffer": {"m": "ff"}}, r1=broadcast[1])
    one = twin(ended(tmp_path / "planted", TRAINING, last, _ending(TRAINING), moved))
    assert (one.cause, one.phase, one.ranks) == ("other-end", "buffer", (0,))
    stepped = _ending(TRAINING, r2={"param": {"a": "ff"}})
    assert twin(ended(tmp_path / "param", TRAINING, last, _ending(TRAINING), stepped)).phase == "param"


@pytest.mark.parametrize("missing", [{}, {rank: {"param": {}} for rank in FINALS}, {0: FINALS[0], 1: FINALS[1]}])
def test_without_an_end_nothing_is_concluded(missing: dict[int, Any], tmp_path: Path) -> None:
    for name, found in [
        ("other", _unobserved(tmp_path / "other", missing, FINALS)),
        ("one", _unobserved(tmp_path / "one", FINALS, missing)),
    ]:
        assert found.verdict is Verdict.NOT_JUDGED, name
        assert "left no digests of final parameters" in found.problems[0]


def test_variants_of_which_none_was_observed_are_not_judged(tmp_path: Path) -> None:
    writing = {f"l{number}": _writing(TRAINING, number, finals=FINALS, capture="off") for number in (0, 1)}
    found = judged(tmp_path, NOTHING, NOTHING, **writing)
    assert found.verdict is Verdict.NOT_JUDGED
    assert "nothing was observed in launch 0: capture=off" in found.problems


def test_identities_may_differ_only_where_overrides_moved_them(tmp_path: Path) -> None:
    stranger = tuple(replace(one, allow=("experiment.seed",)) for one in (ONE, OTHER))
    found = judged(tmp_path / "elsewhere", TRAINING, TRAINING, *stranger)
    assert found.verdict is Verdict.NOT_JUDGED
    assert [(one.witness, one.cause, one.name) for one in found.findings] == [("identity", "not-comparable", FIELD)]
    group = (replace(ONE, allow=("experiment.config",)), replace(OTHER, allow=()))
    found = judged(tmp_path / "group", TRAINING, TRAINING, *group)
    assert found.verdict is Verdict.REPRODUCIBLE
    assert found.identity_differences[0].allowed


def test_identities_may_not_differ_within_a_variant(tmp_path: Path) -> None:
    both = Variant(overrides=("thing=1",), launches=(0, 1), allow=(FIELD,))
    assert judged(tmp_path, TRAINING, TRAINING, both).verdict is Verdict.NOT_JUDGED


def test_the_world_size_may_never_differ(tmp_path: Path) -> None:
    variants = tuple(replace(one, allow=("experiment",)) for one in (ONE, OTHER))
    found = judged(tmp_path, TRAINING, ranks(Script(world_size=2, evaluate=False)), *variants)
    assert (found.verdict, found.findings[0].name) == (Verdict.NOT_JUDGED, "experiment.world_size")


def test_launches_of_one_variant_are_compared_as_the_same_thing(tmp_path: Path) -> None:
    odd = {**TRAINING, 1: changed(TRAINING[1], step=2, phase="grad_local", name="conv.bias")}
    written = [TRAINING, odd, TRAINING]
    launches = [write_launch(tmp_path, number, one, _writing(one, number // 2)) for number, one in enumerate(written)]
    variants = (replace(ONE, launches=(0, 1)), replace(OTHER, launches=(2,)))
    found = judge(launches, Rules(variants=variants))
    assert [(one.witness, one.launches, one.cause) for one in found.findings] == [
        ("launches", (0, 1), "backward-operator")
    ]
    assert found.classes == [[0, 2], [1]]


def test_twins_of_launches_that_failed_are_compared_as_far_as_they_are_whole(tmp_path: Path) -> None:
    planted = {rank: from_step(rows, 1, "loss") for rank, rows in TRAINING.items()}
    found = judged(tmp_path, TRAINING, planted, l1=_writing(planted, 1, outcome="failed", end="failed"))
    assert (found.verdict, twin(found).step, twin(found).witness) == (Verdict.NOT_JUDGED, 1, "twins")


Change = Callable[[Row], Row]
KEPT = [
    (rank, at)
    for rank, rows in TRAINING.items()
    for at, row in enumerate(rows)
    if row.name != "bucket_layout" and not (row.phase == "rng" and row.name == "python")
]


@given(place=st.sampled_from(KEPT), steps=st.sets(st.integers(0, 4), max_size=3), drops=st.booleans())
def test_no_row_of_the_training_is_ever_left_out(place: tuple[int, int], steps: set[int], drops: bool) -> None:
    """Whatever evaluations only one variant makes: a row of training that differs, or is missing, is a difference."""
    rank, at = place
    row = TRAINING[rank][at]
    rows = TRAINING[rank][:at] + ([] if drops else [replace(row, content="planted")]) + TRAINING[rank][at + 1 :]
    planted = evaluated({**TRAINING, rank: rows}, *sorted(steps))
    one, other, _ = as_twins(launch_of(TRAINING), launch_of(planted, index=1))
    found = compare_launches(one, other)
    is_forward = row.phase == "buffer" and row.spec.endswith("replicated") and drops
    assert found is not None or is_forward


@given(steps=st.sets(st.integers(0, 4), max_size=4), others=st.sets(st.integers(0, 4), max_size=4))
def test_evaluations_alone_are_never_a_difference(steps: set[int], others: set[int]) -> None:
    both = (launch_of(evaluated(TRAINING, *sorted(chosen)), index=at) for at, chosen in enumerate((steps, others)))
    one, other, _ = as_twins(*both)
    assert compare_launches(one, other) is None
