"""What is said of a launch that goes on from a checkpoint: each item that is missing is named, a whole one passes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.errors import Verdict
from ddp_repro.judge.epoch_starts import epoch_starts, steps_done
from ddp_repro.judge.findings import Finding, Judgement
from ddp_repro.judge.judgement import Rules
from ddp_repro.judge.resume_judgement import LAYOUT_ONLY, SAID_OTHERWISE, Stretch, judge_resumed
from ddp_repro.judge.resumed_at import begins_at
from ddp_repro.trace.launch import Launch
from tests.unit.synthetic import (
    PARAMETERS,
    Ranks,
    Row,
    Rows,
    Script,
    changed,
    facts,
    from_step,
    launch_of,
    ranks,
    trace_of,
)

SCRIPT = Script(world_size=3, length=72, epochs=2)
STEPS, EPOCH = 12, 6
LOADER = "DistributedSampler[0]"


def with_boundaries(rows: Rows) -> Rows:
    """Return the rows with what each step starts from, told at the entry of its forward."""
    told: Rows = []
    seen: set[int] = set()
    for row in rows:
        if row.phase == "buffer" and row.step not in seen and row.spec.endswith("replicated"):
            seen.add(row.step)
            told += boundary(row.step)
        told.append(row)
    return told


def boundary(step: int) -> Rows:
    items = [("scheduler.StepLR[0].last_epoch", f"epoch {step}"), ("scaler.scale", "scale")]
    items += [("optimizer.group0.lr", f"rate before {step}")]
    items += [(f"optimizer.{name}.exp_avg", f"moment before {step} {name}") for name in PARAMETERS]
    items += [("copy.Net[0].weight", f"average {step}")]
    items += [(f"param.{name}", f"before {step} {name}") for name in PARAMETERS]
    return [Row(step, "boundary", name, "float32[8]", content) for name, content in items]


STRAIGHT: Ranks = {rank: with_boundaries(rows) for rank, rows in ranks(SCRIPT).items()}


def stopped(at: int) -> Ranks:
    """Return what was recorded up to a stop, without boundaries, as a launch that is to be stopped records it."""
    return {rank: [row for row in rows if row.step < at and row.phase != "boundary"] for rank, rows in STRAIGHT.items()}


def gone_on(at: int, *, counts_on: bool = False, skips: bool = False, until: int = STEPS + 1) -> Ranks:
    """Return what a new process records that goes on after ``at`` steps, as a script does that counts from 0.

    With ``skips`` it fetches the batches of the epoch that were trained on, to leave them behind.
    """
    made = {}
    for rank, rows in STRAIGHT.items():
        init = [row for row in rows if row.phase == "init"]
        kept = [row for row in rows if at <= row.step < until and not (row.phase == "boundary" and row.step > at)]
        begun = [replace(row, step=at) for row in _pass_begin(rows, at)]
        skipped = [replace(row, step=at) for row in _fetched(rows, at)] if skips else []
        if skips or at % EPOCH:
            kept = [*begun, *skipped, *kept]
        shift = 0 if counts_on else at
        made[rank] = [*init, *(replace(row, step=row.step - shift) for row in kept)]
    return made


def _pass_begin(rows: Rows, at: int) -> Rows:
    """Return what is said as the pass under way begins, which a new process calls its first."""
    epoch = max(0, (at - 1) // EPOCH) if at % EPOCH == 0 else at // EPOCH
    told = {"length": SCRIPT.length, "shuffle": 1, "drop_last": 0, "epoch": epoch, "num_replicas": 3}
    rank = next(int(row.value or 0) for row in rows if row.name.endswith("sampler_rank"))
    return facts(at, LOADER, {"pass": 0, **told, "num_workers": 0, "sampler_rank": rank})


def _fetched(rows: Rows, at: int) -> Rows:
    first = (at // EPOCH) * EPOCH
    delivered = [row for row in rows if first <= row.step < at and row.phase in ("data", "rng")]
    return [
        row for row in delivered if row.name.startswith((f"{LOADER}.index", f"{LOADER}.batch")) or row.phase == "rng"
    ]


def judged(at: int, resumed: Ranks, *, stop: Ranks | None = None, begins: int | None = -1) -> Judgement:
    launches = [launch_of(STRAIGHT), launch_of(stop or stopped(at), index=1), launch_of(resumed, index=2)]
    stretches = [
        Stretch(launch=1, begins=0, stops=at),
        Stretch(launch=2, begins=at if begins == -1 else begins),
    ]
    return judge_resumed(launches, stretches, Rules())


def only(judgement: Judgement) -> Finding:
    assert judgement.verdict is Verdict.DIVERGED, judgement
    (found,) = judgement.findings
    assert found.witness == "twins"
    assert found.launches == (0, 2)
    return found


def edited(at: int, edit: Callable[[Rows], Rows], *, on: tuple[int, ...] = (0, 1, 2), **how: bool) -> Ranks:
    resumed = gone_on(at, **how)
    return {rank: edit(rows) if rank in on else rows for rank, rows in resumed.items()}


@given(
    at=st.integers(1, STEPS - 1),
    counts_on=st.booleans(),
    skips=st.booleans(),
)
def test_a_launch_that_goes_on_in_the_same_bits_passes(*, at: int, counts_on: bool, skips: bool) -> None:
    found = judged(at, gone_on(at, counts_on=counts_on, skips=skips and at % EPOCH > 0))
    assert (found.verdict, found.findings, found.problems) == (Verdict.REPRODUCIBLE, [], [])
    assert found.classes == [[0, 1, 2]]


@given(at=st.integers(1, STEPS - 1), data=st.data())
def test_no_difference_from_the_boundary_on_is_missed(*, at: int, data: st.DataObject) -> None:
    resumed = gone_on(at)
    rank = data.draw(st.integers(0, 2))
    left_out = ("init",)
    told = ("pass", "length", "num_workers", "end", "bucket_layout")
    rows = resumed[rank]
    places = [
        place
        for place, row in enumerate(rows)
        if row.phase not in left_out
        and not row.name.endswith(told)
        and row.name != "python"
        and not _is_said_of_the_pass_under_way(row, at)
    ]
    place = data.draw(st.sampled_from(places))
    resumed[rank] = [*rows[:place], replace(rows[place], content="another"), *rows[place + 1 :]]
    found = judged(at, resumed)
    assert found.verdict is Verdict.DIVERGED
    assert rank in found.findings[0].ranks
    assert found.findings[0].step == rows[place].step + at


def _is_said_of_the_pass_under_way(row: Row, at: int) -> bool:
    """Tell of a row that says how batches come about, whose content is equal: content decides."""
    return (
        row.phase == "data" and ".batch" not in row.name and (row.step == 0 or (row.step + at) // EPOCH == at // EPOCH)
    )


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("scheduler.StepLR[0].last_epoch", "restored-scheduler"),
        ("optimizer.group0.lr", "restored-settings"),
        ("scaler.scale", "restored-scaler"),
        ("optimizer.head.weight.exp_avg", "restored-optimizer"),
        ("copy.Net[0].weight", "restored-copy"),
        ("param.conv.bias", "restored-parameters"),
    ],
)
def test_an_item_that_is_missing_is_named_before_the_step(name: str, cause: str) -> None:
    resumed = edited(4, lambda rows: from_step(changed(rows, step=0, phase="boundary", name=name), 0, "param"))
    found = only(judged(4, resumed))
    assert (found.cause, found.step, found.phase, found.name) == (cause, 4, "boundary", name)
    assert found.ranks == (0, 1, 2)


def test_a_copy_that_only_one_launch_has_is_a_note() -> None:
    resumed = edited(4, lambda rows: [row for row in rows if not row.name.startswith("copy.Net[0]")])
    found = judged(4, resumed)
    assert (found.verdict, found.findings) == (Verdict.REPRODUCIBLE, [])
    assert "launch 2: only one of both launches had copy.Net[0], which is not compared" in found.notes


def test_moments_that_are_not_there_are_the_optimizers_state() -> None:
    resumed = edited(4, lambda rows: [row for row in rows if not row.name.startswith("optimizer.conv")])
    found = only(judged(4, resumed))
    assert (found.cause, found.names) == (
        "restored-optimizer",
        ("optimizer.conv.weight.exp_avg", "optimizer.conv.bias.exp_avg"),
    )


def test_a_generator_that_only_rank_0_got_back_is_placed_on_the_others() -> None:
    def other(rows: Rows) -> Rows:
        return [replace(row, content=f"other {row.content}") if row.name == "torch" else row for row in rows]

    found = only(judged(4, edited(4, other, on=(1, 2))))
    assert (found.cause, found.phase, found.name, found.ranks) == ("restored-generator", "rng", "torch", (1, 2))
    assert "rank 0 alone got its own back" in found.message


def test_a_generator_that_nothing_draws_from_is_a_warning() -> None:
    found = judged(4, edited(4, lambda rows: changed(rows, phase="rng", name="python")))
    assert found.verdict is Verdict.REPRODUCIBLE
    assert [(one.severity, one.cause, one.name) for one in found.findings] == [("warning", "idle-generator", "python")]


def test_data_that_begin_anew_are_those_of_another_step() -> None:
    resumed = gone_on(3)
    for rank, rows in resumed.items():
        first = [row for row in STRAIGHT[rank] if row.step == 0 and row.name == f"{LOADER}.index"]
        batch = iter(first)
        resumed[rank] = [
            replace(next(batch), step=0) if row.step == 0 and row.name == f"{LOADER}.index" else row for row in rows
        ]
        resumed[rank] = changed(resumed[rank], step=0, name=f"{LOADER}.batch[0]")
    found = only(judged(3, resumed))
    assert (found.cause, found.step, found.name) == ("restored-position", 3, f"{LOADER}.index")
    assert "its first batch is that of step 0, and should be that of step 3" in found.message


def test_an_epoch_that_is_counted_from_0_again_is_named() -> None:
    resumed = edited(9, lambda rows: changed(rows, step=0, phase="data", name=f"{LOADER}.epoch"))
    resumed = {
        rank: changed(
            [replace(row, value=0.0) if row.name.endswith(".epoch") else row for row in rows],
            step=0,
            name=f"{LOADER}.batch[0]",
        )
        for rank, rows in resumed.items()
    }
    found = only(judged(9, resumed))
    assert (found.cause, found.name) == ("restored-position", f"{LOADER}.epoch")
    assert "its epoch is 0 and should be 1" in found.message


def test_the_same_batches_said_in_another_way_are_no_difference() -> None:
    def skipping(rows: Rows) -> Rows:
        by_name = [replace(row, name=row.name.replace(LOADER, "SkipBatches[0]")) for row in rows if row.step < 2]
        kept = [row for row in by_name if row.phase != "data" or ".batch" in row.name or ".index" in row.name]
        kept = changed(kept, step=0, name="SkipBatches[0].index")
        later = [replace(row, name=row.name.replace(LOADER, "DistributedSampler[2]")) for row in rows]
        return [*kept, *(row for row in later if row.step >= 2)]

    found = judged(4, edited(4, skipping))
    assert (found.verdict, found.findings) == (Verdict.REPRODUCIBLE, [])
    assert f"launch 2: {SAID_OTHERWISE}" in found.notes


def test_a_launch_that_begins_anew_did_not_go_on() -> None:
    found = only(judged(4, gone_on(0)))
    assert (found.cause, found.step, found.ranks) == ("begun-anew", 4, (0, 1, 2))


def test_an_iteration_that_was_discarded_before_the_state_was_loaded_does_not_count() -> None:
    def with_discarded(rows: Rows) -> Rows:
        phases = ("boundary", "loss", "grad_local", "grad_reduced", "buffer")
        first = [row for row in rows if row.step == 0 and row.phase in phases]
        begins = next(place for place, row in enumerate(rows) if row.step == 0)
        return [*rows[:begins], *(replace(row, content=f"discarded {row.content}") for row in first), *rows[begins:]]

    found = judged(4, edited(4, with_discarded))
    assert (found.verdict, found.findings) == (Verdict.REPRODUCIBLE, [])


def test_other_content_of_the_same_samples_was_drawn_by_workers() -> None:
    resumed = edited(4, lambda rows: from_step(changed(rows, step=0, name=f"{LOADER}.batch[0]"), 0, "loss"))
    found = only(judged(4, resumed))
    assert (found.cause, found.phase, found.name) == ("restored-draws", "data", f"{LOADER}.batch[0]")


def test_buffers_that_were_not_saved_are_seen_at_the_forward() -> None:
    resumed = edited(4, lambda rows: changed(rows, step=0, phase="buffer", spec="float32[4] replicated"))
    found = only(judged(4, resumed))
    assert (found.cause, found.phase, found.name) == ("restored-buffers", "buffer", "norm.mean")


def test_other_buckets_are_the_cause_where_reduced_gradients_differ() -> None:
    resumed = edited(4, lambda rows: changed(from_step(rows, 0, "grad_reduced"), step=0, name="bucket_layout"))
    found = only(judged(4, resumed))
    assert (found.cause, found.step, found.phase, found.name) == ("bucket-layout", 4, "grad_reduced", "conv.weight")
    assert "settle_buckets" in found.advice


def test_other_buckets_alone_are_a_note() -> None:
    found = judged(4, edited(4, lambda rows: changed(rows, step=0, name="bucket_layout")))
    assert (found.verdict, found.findings) == (Verdict.REPRODUCIBLE, [])
    assert f"launch 2: {LAYOUT_ONLY}" in found.notes


def test_a_difference_in_a_later_step_is_diagnosed_as_ever() -> None:
    found = only(judged(4, edited(4, lambda rows: from_step(rows, 2, "loss"))))
    assert (found.cause, found.step, found.phase) == ("forward-operator", 6, "loss")


def test_a_training_that_does_not_repeat_is_told_apart_from_a_bad_restart() -> None:
    stop = {rank: from_step(rows, 2, "grad_local") for rank, rows in stopped(4).items()}
    found = judged(4, gone_on(4), stop=stop)
    (first,) = found.findings
    assert (first.witness, first.launches, first.step, first.cause) == ("launches", (0, 1), 2, "backward-operator")
    assert "before anything was stopped" in first.message


def test_a_launch_that_goes_on_too_short_differs() -> None:
    found = only(judged(4, gone_on(4, until=STEPS - 1)))
    assert found.cause == "control-flow"


def test_where_a_launch_goes_on_is_found_by_its_parameters() -> None:
    straight = launch_of(STRAIGHT)
    assert begins_at(straight, launch_of(gone_on(5)), None) == 5
    assert begins_at(straight, launch_of(gone_on(5)), 4) == 5
    assert begins_at(straight, launch_of(gone_on(7, counts_on=True)), None) == 7
    strange = edited(5, lambda rows: changed(rows, step=0, phase="boundary", name="param.conv.bias"))
    assert begins_at(straight, launch_of(strange), 5) == 5


def test_a_killed_launch_may_be_cut_and_a_missing_one_may_not() -> None:
    killed = launch_of(stopped(5), index=1)
    killed = replace(killed, problems=["launch 1 was killed"])
    rest = launch_of(gone_on(4), index=2)
    stretches = [Stretch(launch=1, begins=0, stops=5, is_killed=True), Stretch(launch=2, begins=None)]
    found = judge_resumed([launch_of(STRAIGHT), killed, rest], stretches, Rules())
    assert (found.verdict, found.problems) == (Verdict.REPRODUCIBLE, [])
    alone = judge_resumed([launch_of(STRAIGHT), killed], stretches, Rules())
    assert (alone.verdict, alone.problems) == (Verdict.NOT_JUDGED, ["only 2 of 3 launches were made"])
    none = judge_resumed([launch_of(STRAIGHT)], [], Rules())
    assert none.verdict is Verdict.NOT_JUDGED


@pytest.mark.parametrize("absent", [(2,), (1, 2)])
def test_a_rank_that_wrote_nothing_before_it_was_killed_is_no_difference(absent: tuple[int, ...]) -> None:
    def without(rows: Ranks, index: int) -> Launch:
        launch = launch_of(rows, index=index)
        left = {rank: trace for rank, trace in launch.traces.items() if rank not in absent}
        return replace(launch, traces=left, identities={rank: launch.identities[rank] for rank in left})

    stretches = [
        Stretch(launch=1, begins=0, stops=1, is_killed=True),
        Stretch(launch=2, begins=None, stops=6, is_killed=True),
        Stretch(launch=3, begins=None),
    ]
    killed = [without(stopped(2), 1), without(gone_on(4, until=6), 2)]
    launches = [launch_of(STRAIGHT), *killed, launch_of(gone_on(5), index=3)]
    found = judge_resumed(launches, stretches, Rules())
    assert (found.verdict, found.findings, found.problems) == (Verdict.REPRODUCIBLE, [], [])
    launches[1] = without({**stopped(2), 0: changed(stopped(2)[0], step=0, phase="loss")}, 1)
    assert judge_resumed(launches, stretches, Rules()).verdict is Verdict.DIVERGED


def test_a_launch_that_goes_on_and_is_killed_may_be_cut() -> None:
    cut = {rank: [row for row in rows if row.step < 4] for rank, rows in gone_on(4).items()}
    cut[1] = cut[1][:-3]
    stretches = [Stretch(launch=1, begins=0, stops=4), Stretch(launch=2, begins=4, stops=9, is_killed=True)]
    launches = [launch_of(STRAIGHT), launch_of(stopped(4), index=1), launch_of(cut, index=2)]
    assert judge_resumed(launches, stretches, Rules()).verdict is Verdict.REPRODUCIBLE


def test_a_launch_that_saved_nothing_is_not_judged() -> None:
    stretch = Stretch(launch=1, begins=0, stops=4, problem="launch 1 saved nothing")
    found = judge_resumed([launch_of(STRAIGHT), launch_of(stopped(4), index=1)], [stretch], Rules())
    assert (found.verdict, found.problems) == (Verdict.NOT_JUDGED, ["launch 1 saved nothing"])


def test_the_extent_of_a_training_is_read_off_its_trace() -> None:
    trace = trace_of(STRAIGHT[0])
    assert (steps_done(trace), epoch_starts(trace)) == (STEPS, [0, EPOCH])
