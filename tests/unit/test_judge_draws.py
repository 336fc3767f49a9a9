from collections.abc import Callable
from dataclasses import replace

import pytest

from ddp_repro.judge.draws import worker_draws
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.noise import noise_findings
from ddp_repro.judge.passes import passes_of
from tests.unit.synthetic import Ranks, Row, Rows, Script, ranks, trace_of

LOADER = "DistributedSampler[0]"
SCRIPT = Script(world_size=2, length=48, workers=2, epochs=2)


def workers(written: Ranks) -> list[Finding]:
    traces = {rank: trace_of(rows, rank=rank) for rank, rows in written.items()}
    return worker_draws(0, traces, [one for trace in traces.values() for one in passes_of(trace)])


def noise(written: Ranks) -> list[Finding]:
    traces = {rank: trace_of(rows, rank=rank) for rank, rows in written.items()}
    return noise_findings(0, traces, [one for trace in traces.values() for one in passes_of(trace)])


@pytest.mark.parametrize("number_of_workers", [0, 1, 2, 4])
def test_workers_with_streams_of_their_own_are_not_blamed(number_of_workers: int) -> None:
    written = ranks(replace(SCRIPT, workers=number_of_workers))
    assert workers(written) == []
    assert noise(written) == []


def test_workers_of_a_rank_that_draw_the_same_are_an_error() -> None:
    (found,) = workers(ranks(replace(SCRIPT, noise=lambda rank, worker, number, turn: f"{rank}/{number}/{turn}")))
    assert (found.witness, found.severity, found.cause) == ("invariants", "error", "worker-rng")
    assert (found.step, found.ranks, found.phase, found.name) == (1, (0, 1), "rng", f"{LOADER}.worker1.numpy.before")
    assert f"{LOADER}: worker0 and worker1 of rank 0 draw the same numbers from numpy" in found.message


def test_a_worker_that_begins_alike_in_each_pass_is_an_error() -> None:
    """A private generator copied by fork: each pass starts from the same copy."""
    (found,) = workers(ranks(replace(SCRIPT, noise=lambda rank, worker, number, turn: f"{rank}/{worker}/{turn}")))
    assert (found.severity, found.cause, found.step) == ("error", "worker-rng", 6)
    assert "passes 0 and 1 of worker0 on rank 0" in found.message


def test_only_one_rank_with_repeated_draws_is_named() -> None:
    script = replace(
        SCRIPT, noise=lambda rank, worker, number, turn: f"{rank}/{worker if rank == 0 else 'all'}/{number}/{turn}"
    )
    (found,) = workers(ranks(script))
    assert found.ranks == (1,)


def test_workers_of_two_ranks_that_draw_the_same_are_a_warning() -> None:
    (found,) = workers(ranks(replace(SCRIPT, noise=lambda rank, worker, number, turn: f"{worker}/{number}/{turn}")))
    assert (found.severity, found.cause) == ("warning", "correlated-noise")
    assert (found.step, found.ranks, found.name) == (0, (0, 1), f"{LOADER}.worker0.numpy.before")
    assert "numpy draws the same numbers on ranks 0 and 1" in found.message


def test_generators_that_nobody_draws_from_are_not_blamed() -> None:
    """The state is the same for all, and stays what it is."""
    assert workers(ranks(replace(SCRIPT, noise=lambda rank, worker, number, turn: "still"))) == []


def test_equal_draws_for_the_same_samples_are_not_blamed() -> None:
    script = replace(SCRIPT, shuffle=False, noise=lambda rank, worker, number, turn: f"{rank}/{worker}/{turn}")
    assert workers(ranks(script)) == []


def test_equal_draws_in_evaluation_are_not_blamed() -> None:
    def evaluation_only(rows: Rows) -> Rows:
        return [row for row in rows if row.phase in ("init", "data", "rng")]

    script = replace(SCRIPT, noise=lambda rank, worker, number, turn: f"{turn}")
    assert workers({rank: evaluation_only(rows) for rank, rows in ranks(script).items()}) == []


def reseeded(rows: Rows) -> Rows:
    """Return the rows with a generator that is seeded for each sample by its index alone, whatever the epoch."""
    made: Rows = []
    state = {"worker0": "fresh", "worker1": "fresh"}
    last = ""
    for row in rows:
        last = row.content if row.name == f"{LOADER}.index" else last
        parts = row.name.split(".")
        if parts[-2:-1] == ["numpy"]:
            if parts[-1] == "after":
                state[parts[1]] = f"after sample {last}"
            made.append(replace(row, content=state[parts[1]]))
        else:
            made.append(row)
    return made


def test_draws_that_are_seeded_by_sample_are_not_blamed() -> None:
    """Over many passes two batches begin and end with equal states, by the samples that happen to come last."""
    script = replace(SCRIPT, length=16, epochs=60)
    written = {rank: reseeded(rows) for rank, rows in ranks(script).items()}
    states: dict[tuple[str, str], int] = {}
    rows = written[0]
    for at, row in enumerate(rows):
        if row.name.endswith("numpy.before"):
            key = row.content, rows[at + 1].content
            states[key] = states.get(key, 0) + 1
    assert max(states.values()) > 1, "the case that must not be blamed occurs"
    assert workers(written) == []


def test_private_generators_of_the_main_process_are_judged_too() -> None:
    def with_private(rank: int, rows: Rows, *, same: bool) -> Rows:
        made: Rows = []
        batch = 0
        for at, row in enumerate(rows):
            made.append(row)
            if row.name == f"{LOADER}.index" and rows[at + 1].name != row.name:
                who = "all" if same else rank
                made += [
                    Row(row.step, "rng", f"{LOADER}.main.dataset.rng.before", "state", f"{who} {batch}"),
                    Row(row.step, "rng", f"{LOADER}.main.dataset.rng.after", "state", f"{who} {batch + 1}"),
                ]
                batch += 1
        return made

    written = ranks(replace(SCRIPT, workers=0))
    assert workers({rank: with_private(rank, rows, same=False) for rank, rows in written.items()}) == []
    (found,) = workers({rank: with_private(rank, rows, same=True) for rank, rows in written.items()})
    assert (found.severity, found.ranks, found.name) == ("warning", (0, 1), f"{LOADER}.main.dataset.rng.before")
    assert "dataset.rng draws the same numbers" in found.message


def test_the_same_dropout_on_all_ranks_is_a_warning() -> None:
    (found,) = noise(ranks(replace(SCRIPT, dropout=lambda rank: "of all")))
    assert (found.witness, found.severity, found.cause) == ("invariants", "warning", "correlated-noise")
    assert (found.step, found.ranks, found.phase, found.name) == (1, (0, 1), "rng", "torch")
    assert "main process: torch draws the same numbers on ranks 0 and 1" in found.message


def test_only_the_ranks_that_draw_alike_are_named() -> None:
    (found,) = noise(ranks(replace(SCRIPT, world_size=4, dropout=lambda rank: f"of {'two' if rank < 2 else rank}")))
    assert found.ranks == (0, 1)


def test_draws_at_the_beginning_of_a_pass_are_no_noise() -> None:
    """A loader draws its workers' seed there, from a generator that many seed alike on all ranks."""

    def only_at_passes(rows: Rows) -> Rows:
        made: Rows = []
        passes = 0
        for row in rows:
            passes += row.name.endswith(".pass")
            made.append(replace(row, content=f"drawn {passes}") if row.name == "torch" else row)
        return made

    assert noise({rank: only_at_passes(rows) for rank, rows in ranks(SCRIPT).items()}) == []


def test_a_device_has_another_number_on_each_rank() -> None:
    def on_device(rank: int, rows: Rows) -> Rows:
        return [replace(row, name=f"cuda:{rank}") if row.name == "torch" else row for row in rows]

    written = ranks(replace(SCRIPT, dropout=lambda rank: "of all"))
    (found,) = noise({rank: on_device(rank, rows) for rank, rows in written.items()})
    assert (found.ranks, found.name) == ((0, 1), "cuda:0")


def reseeded_alike(script: Script, constant: str) -> Ranks:
    """Return workers whose generator is seeded within each sample, with the same number everywhere.

    The first batch of a worker begins in a state of its own, and ends where every batch ends.
    """
    states: dict[str, str] = {}

    def state(row: Row, rank: int) -> Row:
        if not row.name.endswith((".numpy.before", ".numpy.after")):
            return row
        worker = f"{rank} {row.name.rpartition('.')[0]}"
        if row.name.endswith(".after"):
            states[worker] = constant
        return replace(row, content=states.get(worker, f"seed of {worker}"))

    return {rank: [state(row, rank) for row in rows] for rank, rows in ranks(script).items()}


def test_workers_that_are_seeded_anew_with_a_constant_are_found() -> None:
    (found,) = workers(reseeded_alike(SCRIPT, "constant"))
    assert (found.severity, found.cause, found.step, found.ranks) == ("error", "worker-rng", 1, (0, 1))
    assert "seeded anew within the batch, with a number that does not depend on the sample" in found.message


def test_one_worker_a_rank_that_is_seeded_anew_is_seen_across_ranks_alone() -> None:
    (found,) = workers(reseeded_alike(replace(SCRIPT, workers=1, epochs=1), "constant"))
    assert (found.severity, found.cause) == ("warning", "correlated-noise")


def test_a_generator_that_is_drawn_from_once_is_not_blamed() -> None:
    """Its state stays where the first batch left it, another one in each worker."""
    states: dict[str, str] = {}

    def state(row: Row, rank: int) -> Row:
        if not row.name.endswith((".numpy.before", ".numpy.after")):
            return row
        worker = f"{rank} {row.name.rpartition('.')[0]}"
        if row.name.endswith(".after"):
            states[worker] = f"drawn once by {worker}"
        return replace(row, content=states.get(worker, f"seed of {worker}"))

    written = {rank: [state(row, rank) for row in rows] for rank, rows in ranks(SCRIPT).items()}
    assert workers(written) == []


def seeded(written: Ranks, seeds: Callable[[str], str], state: Callable[[str, str], str]) -> Ranks:
    """Return the ranks with NumPy seeded for each batch: ``seeds`` and the states by worker, and by batch or side."""

    def rank_rows(rank: int, rows: Rows) -> Rows:
        made: Rows = []
        batches = 0
        for row in rows:
            name, _, side = row.name.rpartition(".")
            if not name.endswith(".numpy"):
                made.append(row)
                continue
            batches += side == "before"
            made.append(replace(row, content=state(f"{rank} {name}", f"{side} {batches}")))
            if side == "after":
                made.append(Row(row.step, "rng", f"{name}.seeded", "seeds", seeds(f"{rank} {batches}"), 4.0))
        return made

    return {rank: rank_rows(rank, rows) for rank, rows in written.items()}


ONE_WORKER = replace(SCRIPT, workers=1, epochs=1)


def test_one_worker_that_is_seeded_with_a_constant_is_an_error_where_the_seeding_was_seen() -> None:
    """It moves once, and is in one state from then on."""
    written = seeded(
        ranks(ONE_WORKER),
        seeds=lambda batch: "1234",
        state=lambda worker, turn: f"seed of {worker}" if turn == "before 1" else "constant",
    )
    (found,) = workers(written)
    assert (found.severity, found.cause, found.step, found.ranks) == ("error", "worker-rng", 1, (0, 1))
    assert "with a number that does not depend on the sample" in found.message


@pytest.mark.parametrize("is_drawn_from", [False, True])
def test_a_generator_that_is_put_back_after_it_was_seeded_is_not_blamed(is_drawn_from: bool) -> None:
    """As with ``fork_rng`` around something that is meant to be drawn alike each time."""
    written = seeded(
        ranks(ONE_WORKER),
        seeds=lambda batch: "1234",
        state=lambda worker, turn: f"{worker} {turn if is_drawn_from else ''}",
    )
    assert workers(written) == []


def test_a_generator_that_is_seeded_by_sample_is_not_blamed_where_the_seeding_was_seen() -> None:
    written = seeded(
        ranks(ONE_WORKER), seeds=lambda batch: f"by sample {batch}", state=lambda worker, turn: f"{worker} {turn}"
    )
    assert workers(written) == []
