from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import passes_of
from ddp_repro.judge.shards import shard_findings
from tests.unit import synthetic
from tests.unit.synthetic import Ranks, Row, Rows, Script, delivery, facts, ranks, trace_of, train_step

LOADER = "DistributedSampler[0]"


def judged(written: Ranks) -> tuple[list[Finding], list[str]]:
    passes = [one for rank, rows in written.items() for one in passes_of(trace_of(rows, rank=rank))]
    return shard_findings(0, passes, len(written))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [1, 5, 24, 25, 26, 27])
@pytest.mark.parametrize("drops", ["nothing", "sampler", "loader"])
@pytest.mark.parametrize("max_steps", [None, 0, 1, 3])
def test_clean_shards_are_never_blamed(world_size: int, length: int, drops: str, max_steps: int | None) -> None:
    script = Script(
        world_size=world_size,
        length=length,
        drop_last=drops == "sampler",
        loader_drops=drops == "loader",
        max_steps=max_steps,
    )
    findings, _ = judged(ranks(script))
    assert findings == []


def test_padding_is_a_note_in_training() -> None:
    findings, notes = judged(ranks(Script(world_size=4, length=25)))
    assert findings == []
    assert notes == [f"{LOADER}: 3 samples a pass delivered twice to fill up the shards"]


def test_padding_is_a_warning_in_evaluation() -> None:
    findings, _ = judged(ranks(Script(world_size=4, length=24, evaluation_sampler="distributed")))
    assert {(found.cause, found.severity, found.name) for found in findings} == {
        ("evaluation-padding", "warning", "DistributedSampler[1].index"),
        ("evaluation-padding", "warning", "DistributedSampler[2].index"),
    }
    assert "1 sample is delivered twice" in findings[0].message


def test_evaluation_without_padding_is_clean() -> None:
    assert judged(ranks(Script(world_size=4, length=25, evaluation_sampler="distributed")))[0] == []


def test_a_dropped_tail_is_a_note() -> None:
    _, notes = judged(ranks(Script(world_size=3, length=26, drop_last=True)))
    assert notes == [f"{LOADER}: 2 samples a pass left out with incomplete shards or batches"]


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("length", [24, 25])
def test_a_sampler_seeded_by_rank_is_found_at_its_first_pass(world_size: int, length: int) -> None:
    script = Script(world_size=world_size, length=length, sampler_seed=lambda rank: rank)
    (found,), _ = judged(ranks(script))
    assert (found.witness, found.severity, found.cause) == ("invariants", "error", "shards-overlap")
    assert (found.step, found.phase, found.name) == (0, "data", f"{LOADER}.index")
    assert found.ranks == tuple(range(world_size))
    assert "pass 0" in found.message
    assert "is the sampler seeded by rank?" in found.message
    assert "the same in 1 later pass" in found.message


def test_samples_are_counted_exactly() -> None:
    script = Script(world_size=2, length=24, sampler_seed=lambda rank: rank)
    written = ranks(script)
    first = [[int(row.value or 0) for row in rows if row.name == f"{LOADER}.index"][:12] for rows in written.values()]
    twice = len(set(first[0]) & set(first[1]))
    assert twice > 0
    (found,), _ = judged(written)
    assert f"{twice} samples delivered twice and {twice} samples of 24 never" in found.message


def test_overlap_is_found_in_a_pass_that_was_left_early() -> None:
    script = Script(world_size=2, length=24, sampler_seed=lambda rank: rank, max_steps=2)
    (found,), _ = judged(ranks(script))
    assert (found.cause, found.step) == ("shards-overlap", 0)
    assert "never" not in found.message


def test_a_rank_whose_epoch_was_not_set_is_named() -> None:
    script = Script(world_size=4, length=24, epoch_of=lambda rank, number: 0 if rank == 2 else number)
    (found,), _ = judged(ranks(script))
    assert (found.cause, found.ranks, found.step) == ("shards-overlap", (2,), 2)
    assert "the samplers' epochs differ" in found.message


def test_ranks_that_take_the_same_shard_are_named() -> None:
    written = ranks(Script(world_size=4, length=24))
    written[3] = written[1]
    (found,), _ = judged(written)
    assert (found.ranks, found.cause) == ((1, 3), "shards-overlap")
    assert "ranks 1 and 3 take the same shard" in found.message


def test_missing_samples_are_found() -> None:
    def cut(rows: Rows) -> Rows:
        return [row for row in rows if not (row.name == f"{LOADER}.index" and row.step == 1 and (row.value or 0) % 2)]

    written = ranks(Script(world_size=2, length=24, epochs=1, shuffle=False))
    written = {rank: cut(rows) for rank, rows in written.items()}
    left = 24 - sum(row.name == f"{LOADER}.index" for rows in written.values() for row in rows)
    assert left > 2
    (found,), _ = judged(written)
    assert f"{left} samples of 24 never" in found.message


def test_a_sequential_sampler_on_all_ranks_is_not_sharded() -> None:
    findings, notes = judged(ranks(Script(world_size=4, length=25, evaluation_sampler="sequential")))
    assert findings == []
    assert all("Sequential" not in note for note in notes)


def loader_rows(name: str, told: dict[str, int], samples: list[int], *, trains: bool = True) -> Rows:
    rows = facts(0, name, told)
    for step, at in enumerate(range(0, len(samples), 4)):
        rows += delivery(step, name, samples[at : at + 4], [])
        rows.append(Row(step, "data", f"{name}.batch", "float32[4]", str(samples[at : at + 4])))
        rows += train_step(step, 0) if trains else []
    return [*rows, Row(len(samples), "data", f"{name}.end", "int64[]", "end", 1)]


def told(count: int, place: int, **more: int) -> dict[str, int]:
    return {"pass": 0, "length": 24, "num_replicas": count, "sampler_rank": place, "drop_last": 0, **more}


def test_ranks_that_share_a_shard_on_purpose_are_not_blamed() -> None:
    """Two data-parallel shards over four ranks: the tensor-parallel partners read the same samples."""
    written = {
        rank: loader_rows("DistributedSampler[0]", told(2, rank // 2), list(range(rank // 2, 24, 2)))
        for rank in range(4)
    }
    assert judged(written) == ([], [])


def test_overlap_is_found_among_fewer_shards_than_ranks_too() -> None:
    written = {rank: loader_rows("DistributedSampler[0]", told(2, rank // 2), list(range(12))) for rank in range(4)}
    (found,), _ = judged(written)
    assert "12 samples delivered twice and 12 samples of 24 never" in found.message


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(lambda rank: list(np.random.default_rng(rank).integers(0, 24, 12)), id="with replacement"),
        pytest.param(lambda rank: sorted([*range(rank, 24, 2)] * 3)[:24], id="repeated augmentation"),
    ],
)
def test_a_sampler_that_draws_again_on_purpose_is_noted(samples: Callable[[int], list[int]]) -> None:
    written = {
        rank: loader_rows("WeightedSampler[0]", told(2, rank), [int(index) for index in samples(rank)])
        for rank in range(2)
    }
    findings, notes = judged(written)
    assert findings == []
    assert "its shards were not judged" in notes[0]


def test_padding_of_whole_batches_is_no_overlap() -> None:
    """Some samplers begin again at the front until the last batch is full on every rank."""
    order = [*range(20), *range(4)]
    batches = [order[at : at + 4] for at in range(0, 24, 4)]
    written = {
        rank: loader_rows("BatchShard[0]", told(2, rank, length=20), [i for batch in batches[rank::2] for i in batch])
        for rank in range(2)
    }
    assert judged(written)[0] == []


def test_a_split_that_does_not_fit_the_world_is_noted() -> None:
    written = {rank: loader_rows("DistributedSampler[0]", told(8, rank), list(range(rank, 24, 8))) for rank in range(2)}
    findings, notes = judged(written)
    assert findings == []
    assert notes == ["DistributedSampler[0]: it has 8 shards in a world of 2, so its shards were not judged"]


def test_loaders_that_are_interleaved_are_told_apart() -> None:
    def rank_rows(rank: int) -> Rows:
        rows = facts(0, "DistributedSampler[0]", told(2, rank)) + facts(0, "DistributedSampler[1]", told(2, rank))
        for step in range(3):
            for loader in range(2):
                batch = list(range(24))[rank::2][step * 4 : step * 4 + 4]
                rows += delivery(step, f"DistributedSampler[{loader}]", batch, [])
            rows += train_step(step, rank)
        return rows + [Row(3, "data", f"DistributedSampler[{loader}].end", "int64[]", "3", 3) for loader in range(2)]

    assert judged({rank: rank_rows(rank) for rank in range(2)}) == ([], [])


def test_two_iterators_over_one_loader_at_a_time_are_not_judged() -> None:
    def rank_rows(rank: int) -> Rows:
        loader = "DistributedSampler[0]"
        mine = list(range(24))[rank::2]
        rows = facts(0, loader, told(2, rank)) + facts(0, loader, {**told(2, rank), "pass": 1})
        for at in (0, 4, 8):
            rows += delivery(0, loader, mine[at : at + 4], []) + delivery(0, loader, mine[at : at + 4], [])
        return rows + [Row(1, "data", f"{loader}.end", "int64[]", "3", 3)] * 2

    assert judged({rank: rank_rows(rank) for rank in range(2)})[0] == []


def test_a_data_set_without_indices_is_not_judged() -> None:
    rows = [*facts(0, "Stream[0]", told(2, 0)), *train_step(0, 0), Row(1, "data", "Stream[0].end", "int64[]", "1", 1)]
    assert judged({0: rows, 1: rows}) == ([], [])


def test_names_of_batch_fields_are_not_taken_for_facts() -> None:
    rows = ranks(Script(world_size=1))[0]
    odd = [
        Row(0, "data", "DistributedSampler[0].batch[1].index", "int64[]", "x", 5.0),
        Row(0, "data", "DistributedSampler[0].batch.pass", "int64[]", "x", 5.0),
    ]
    plain, with_odd = (passes_of(trace_of(written)) for written in (rows, [*rows[:20], *odd, *rows[20:]]))
    assert [len(one.samples) for one in plain] == [len(one.samples) for one in with_odd]


def test_passes_know_their_batches_and_whether_they_train() -> None:
    passes = passes_of(trace_of(ranks(Script(world_size=2, length=20))[0]))
    described: list[Any] = [(one.loader, one.number, list(one.batches), one.trains, one.whole) for one in passes]
    assert described == [
        (LOADER, 0, [4, 4, 2], True, True),
        (LOADER, 1, [4, 4, 2], True, True),
        ("SequentialSampler[1]", 0, [4, 4, 4, 4, 3], False, True),
        ("SequentialSampler[2]", 0, [4, 4, 4, 4, 3], False, True),
    ]


def test_a_pass_left_after_its_first_batch_is_neither_training_nor_evaluation() -> None:
    rows = ranks(Script(world_size=2, max_steps=1))[0]
    (one,) = passes_of(trace_of(rows))
    assert (one.trains, one.whole) == (None, False)


def test_settings_that_differ_between_ranks_are_noted() -> None:
    written = ranks(Script(world_size=2))
    written[1] = [replace(row, content="9", value=9.0) if row.name == f"{LOADER}.length" else row for row in written[1]]
    findings, notes = judged(written)
    assert findings == []
    assert "its length differs between ranks" in notes[0]


def planned(
    monkeypatch: pytest.MonkeyPatch, plan: Callable[[Script, int, int], "np.ndarray[Any, Any]"], script: Script
) -> list[Finding]:
    """Return what is found where a rank's samples in a pass are those that ``plan`` gives it."""
    monkeypatch.setattr(synthetic, "shard", lambda script, rank, number: plan(script, rank, number).tolist())
    return judged(ranks(script))[0]


def order(script: Script, number: int, rank: int = 0) -> "np.ndarray[Any, Any]":
    return np.random.default_rng((number, rank)).permutation(script.length)


OWN = Script(world_size=3, length=48, sampler="RASampler", evaluate=False)


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("max_steps", [None, 6])
def test_repeated_augmentation_is_warned_of(
    world_size: int, times: int, max_steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeated(script: Script, rank: int, number: int) -> "np.ndarray[Any, Any]":
        views = np.repeat(order(script, number), times)[rank :: script.world_size]
        return views[: script.length // script.world_size]

    script = replace(OWN, world_size=world_size, length=144, max_steps=max_steps)
    found = planned(monkeypatch, repeated, script)
    if world_size < times:  # one rank gets several of a sample's copies
        assert found == []
        return
    assert [(one.cause, one.severity, one.step) for one in found] == [("shards-repeated", "warning", 0)]
    assert f"each of its samples is delivered {times} times" in found[0].message
    (error,) = planned(monkeypatch, repeated, replace(script, sampler="DistributedSampler"))
    assert (error.cause, error.severity) == ("shards-overlap", "error")


@pytest.mark.parametrize("share", [1, 2])
def test_ranks_that_shuffle_on_their_own_are_an_error_whoever_samples(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(script: Script, rank: int, number: int) -> "np.ndarray[Any, Any]":
        return order(script, number, rank)[: script.length // script.world_size // share]

    (found,) = planned(monkeypatch, alone, OWN)
    assert (found.cause, found.severity) == ("shards-overlap", "error")
    assert "is the sampler seeded by rank?" in found.message


def test_a_sampler_that_does_not_split_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = planned(monkeypatch, lambda script, rank, number: order(script, number), OWN)
    assert (found.cause, found.severity) == ("shards-overlap", "error")
    assert "every rank delivers every sample" in found.message


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_part_of_the_data_set_is_warned_of(is_fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(script: Script, rank: int, number: int) -> "np.ndarray[Any, Any]":
        chosen = np.arange(script.length) if is_fixed else order(script, number)
        return np.random.default_rng(number).permutation(chosen[: script.length // 2])[rank :: script.world_size]

    (found,) = planned(monkeypatch, half, OWN)
    assert (found.cause, found.severity, found.ranks) == ("shards-partial", "warning", (0, 1, 2))
    assert "24 samples of 48 are delivered by no rank, and none twice" in found.message
    assert ("the same ones are left out in each pass" in found.message) is is_fixed


def test_a_pass_that_a_resumed_run_goes_on_with_misses_none() -> None:
    def without_first_batch(told: Rows) -> Ranks:
        written = ranks(Script(world_size=3, length=24, epochs=2, evaluate=False))
        begin = next(at for at, row in enumerate(written[0]) if row.name == f"{LOADER}.index")
        return {rank: [*rows[:begin], *told, *rows[begin + 4 :]] for rank, rows in written.items()}

    assert judged(without_first_batch(facts(0, LOADER, {"passed_over": 4})))[0] == []
    assert [found.cause for found in judged(without_first_batch([]))[0]] == ["shards-overlap"]
