from dataclasses import replace

import pytest

from ddp_repro.judge.epochs import epoch_findings
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import passes_of
from tests.unit.synthetic import Ranks, Rows, Script, ranks, trace_of

LOADER = "DistributedSampler[0]"
FORGOTTEN = Script(world_size=2, length=24, epochs=3, epoch_of=lambda rank, number: 0)


def judged(written: Ranks) -> list[Finding]:
    return epoch_findings(0, [one for rank, rows in written.items() for one in passes_of(trace_of(rows, rank=rank))])


@pytest.mark.parametrize("length", [1, 2, 5, 24, 100])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_clean_epochs_are_never_blamed(length: int, world_size: int) -> None:
    assert judged(ranks(Script(world_size=world_size, length=length, epochs=6))) == []


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_forgotten_set_epoch_is_found_at_the_second_pass(world_size: int) -> None:
    (found,) = judged(ranks(replace(FORGOTTEN, world_size=world_size)))
    assert (found.witness, found.severity, found.cause) == ("invariants", "error", "epoch-order")
    assert (found.step, found.phase, found.name) == (-(-24 // world_size // 4), "data", f"{LOADER}.index")
    assert found.ranks == tuple(range(world_size))
    assert "pass 1 has the order of pass 0" in found.message
    assert "its epoch stayed at 0, so set_epoch was not called" in found.message
    assert "the same in 1 later pass" in found.message


def test_a_set_epoch_that_does_not_reach_the_sampler_is_told_apart() -> None:
    def pretending(rows: Rows) -> Rows:
        told = 0
        made = []
        for row in rows:
            told += row.name == f"{LOADER}.pass"
            is_epoch = row.name == f"{LOADER}.epoch"
            made.append(replace(row, content=str(told - 1), value=told - 1.0) if is_epoch else row)
        return made

    (found,) = judged({rank: pretending(rows) for rank, rows in ranks(FORGOTTEN).items()})
    assert "although its epoch moved from 0 to 1" in found.message


def test_a_sampler_without_an_epoch_is_said_to_be_seeded_anew() -> None:
    written = {rank: [row for row in rows if row.name != f"{LOADER}.epoch"] for rank, rows in ranks(FORGOTTEN).items()}
    (found,) = judged(written)
    assert "its generator is seeded anew for each pass" in found.message


def test_one_rank_that_forgets_is_named_alone() -> None:
    script = Script(world_size=2, length=48, epochs=2, epoch_of=lambda rank, number: 0 if rank == 1 else number)
    (found,) = judged(ranks(script))
    assert found.ranks == (1,)


def test_samplers_that_do_not_shuffle_are_not_judged() -> None:
    assert judged(ranks(replace(FORGOTTEN, shuffle=False))) == []


def test_evaluation_in_the_same_order_each_time_is_not_judged() -> None:
    def without_training(rows: Rows) -> Rows:
        return [row for row in rows if row.phase in ("init", "data", "rng")]

    assert judged({rank: without_training(rows) for rank, rows in ranks(FORGOTTEN).items()}) == []


def test_an_epoch_that_was_set_back_on_purpose_is_not_blamed() -> None:
    """Training begins again in the same process: epochs 0, 1, 0, 1."""
    assert judged(ranks(Script(world_size=2, length=24, epochs=4, epoch_of=lambda rank, number: number % 2))) == []


def test_a_last_pass_that_was_left_early_is_compared_as_far_as_it_went() -> None:
    script = replace(FORGOTTEN, length=64, epochs=2)
    steps = 64 // 2 // 4
    (found,) = judged(ranks(replace(script, max_steps=steps + 2)))
    assert (found.step, found.ranks) == (steps, (0, 1))
    assert judged(ranks(replace(script, max_steps=steps + 1))) == [], "one batch: training or not is not certain"


@pytest.mark.parametrize(("length", "is_blamed"), [(4, False), (6, False), (9, False), (10, True), (12, True)])
def test_a_tiny_set_may_repeat_its_order_by_chance(length: int, is_blamed: bool) -> None:
    assert bool(judged(ranks(replace(FORGOTTEN, length=length, epochs=2)))) == is_blamed


def test_a_hundred_epochs_of_one_order_are_one_finding() -> None:
    (found,) = judged(ranks(replace(FORGOTTEN, epochs=100)))
    assert "the same in 98 later passes" in found.message


def renamed(rows: Rows, *, labels: str = "labels") -> Rows:
    """Return the rows as a script leaves them that makes its loader anew for each epoch."""
    made: Rows = []
    loaders = -1
    for row in rows:
        if not row.name.startswith(LOADER):
            made.append(row)
            continue
        loaders += row.name == f"{LOADER}.pass"
        name = row.name.replace(LOADER, f"DistributedSampler[{loaders}]")
        if row.name == f"{LOADER}.pass":
            row = replace(row, value=0.0)  # noqa: PLW2901 -- every one of them is the first pass of its loader
        content = row.content if not row.name.endswith(".batch[1]") else f"{labels} {loaders} {row.content}"
        made.append(replace(row, name=name, content=content if labels != "labels" else row.content))
    return made


def augmented(rows: Rows) -> Rows:
    """Return the rows with images that differ each time they are drawn."""
    return [
        replace(row, content=f"{at} {row.content}") if row.name.endswith(".batch[0]") else row
        for at, row in enumerate(rows)
    ]


def test_a_loader_that_is_made_anew_for_each_epoch_is_judged_with_the_one_before() -> None:
    (found,) = judged({rank: renamed(augmented(rows)) for rank, rows in ranks(FORGOTTEN).items()})
    assert (found.cause, found.step, found.name) == ("epoch-order", 3, "DistributedSampler[1].index")
    assert "DistributedSampler[1]: pass 0 has the order of pass 0 of DistributedSampler[0]" in found.message
    clean = ranks(replace(FORGOTTEN, epoch_of=lambda rank, number: number))
    assert judged({rank: renamed(augmented(rows)) for rank, rows in clean.items()}) == []


def test_two_data_sets_of_one_length_may_be_shuffled_alike() -> None:
    written = {rank: renamed(augmented(rows), labels="of data set") for rank, rows in ranks(FORGOTTEN).items()}
    assert judged(written) == []
