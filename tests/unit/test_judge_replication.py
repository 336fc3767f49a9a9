from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ddp_repro.judge.findings import Finding
from ddp_repro.judge.guards import guard_findings
from ddp_repro.judge.passes import passes_of
from ddp_repro.judge.replication import replication_findings
from ddp_repro.judge.stream_epochs import stream_findings
from tests.unit.synthetic import Ranks, Row, Rows, Script, facts, ranks, trace_of, train_step

STREAM = "Records[0]"
RANKS = 3


def judged(written: Ranks) -> tuple[list[Finding], list[str]]:
    traces = {rank: trace_of(rows, rank=rank) for rank, rows in written.items()}
    return replication_findings(0, traces, [one for trace in traces.values() for one in passes_of(trace)])


def streamed(written: Ranks) -> list[Finding]:
    traces = {rank: trace_of(rows, rank=rank) for rank, rows in written.items()}
    return stream_findings(0, traces, [one for trace in traces.values() for one in passes_of(trace)])


def stream(contents: Sequence[str], rank: int, *, number: int = 0, epoch: int | None = None, workers: int = 0) -> Rows:
    """Return a training pass over an iterable data set, which has no indices."""
    first = number * len(contents)
    told = {"pass": number, "num_workers": workers} | ({} if epoch is None else {"epoch": epoch})
    rows = facts(first, STREAM, told)
    for at, content in enumerate(contents):
        step = first + at
        if workers:
            rows.append(Row(step, "rng", f"{STREAM}.worker{at % workers}.torch.before", "state", f"{rank} {step}"))
        rows.append(Row(step, "rng", "torch", "state", f"torch {rank} {step}"))
        rows.append(Row(step, "data", f"{STREAM}.batch[0]", "float32[4,8]", content))
        if workers:
            rows.append(Row(step, "rng", f"{STREAM}.worker{at % workers}.torch.after", "state", f"{rank} {step}"))
        rows += train_step(step, rank)
    return [*rows, Row(first + len(contents), "data", f"{STREAM}.end", "int64[]", "end", len(contents))]


def streams(content: Callable[[int, int], str], *, batches: int = 6, workers: int = 0) -> Ranks:
    return {rank: stream([content(rank, at) for at in range(batches)], rank, workers=workers) for rank in range(RANKS)}


def test_ranks_that_each_have_their_own_batches_are_clean() -> None:
    assert judged(streams(lambda rank, at: f"{rank} {at}")) == ([], [])


def test_ranks_that_all_train_on_the_same_stream_are_found() -> None:
    (found,), notes = judged(streams(lambda rank, at: f"{at}"))
    assert (found.witness, found.severity, found.cause) == ("invariants", "error", "shards-overlap")
    assert (found.step, found.ranks, found.phase, found.name) == (0, (0, 1, 2), "data", f"{STREAM}.batch")
    assert "6 batches delivered by each of ranks 0 to 2, in the same order" in found.message
    assert notes == []


def test_ranks_of_one_group_that_share_their_batches_are_a_note() -> None:
    found, notes = judged(streams(lambda rank, at: f"{min(rank, 1)} {at}"))
    assert found == []
    assert notes == [f"{STREAM}: ranks 1 and 2 train on the same batches; meant so?"]


def test_the_same_batches_are_a_note_where_no_gradients_are_averaged() -> None:
    unmarked = {
        rank: [replace(row, spec=row.spec.removesuffix(" replicated")) for row in rows]
        for rank, rows in streams(lambda rank, at: f"{at}").items()
    }
    found, notes = judged(unmarked)
    assert found == []
    assert len(notes) == 1


@pytest.mark.parametrize("contents", ["constant", "first"])
def test_batches_of_too_little_content_are_no_evidence(contents: str) -> None:
    assert judged(streams(lambda rank, at: contents, batches=1 if contents == "first" else 6)) == ([], [])


def test_workers_that_each_deliver_everything_are_found() -> None:
    (found,), _ = judged(streams(lambda rank, at: f"{rank} {at // 2}", workers=2))
    assert (found.severity, found.cause, found.ranks) == ("error", "shards-overlap", (0, 1, 2))
    assert "worker0 and worker1 deliver the same batches, 3 batches of 6 again on rank 0" in found.message


def test_workers_with_parts_of_their_own_are_clean() -> None:
    assert judged(streams(lambda rank, at: f"{rank} {at}", workers=2)) == ([], [])


def shuffled(order: Callable[[int], int], **options: object) -> Ranks:
    """Return ranks that each visit all samples, in the order that ``order`` gives a rank."""
    script = Script(world_size=RANKS, sampler="RandomSampler", evaluate=False, epochs=1, **options)  # type: ignore[arg-type]

    def whole(rank: int) -> Rows:
        alone = replace(script, world_size=1, sampler_seed=lambda _: order(rank))
        rows = ranks(alone)[0]
        # Content of a batch is that of its samples, on whatever rank.
        return [row for row in rows if not row.name.endswith((".num_replicas", ".sampler_rank", ".epoch"))]

    return {rank: whole(rank) for rank in range(RANKS)}


def test_ranks_that_shuffle_alike_without_a_sampler_for_them_deliver_the_same() -> None:
    (found,), _ = judged(shuffled(lambda rank: 0))
    assert (found.severity, found.cause, found.name) == ("error", "shards-overlap", "RandomSampler[0].index")
    assert "24 samples delivered by each of ranks 0 to 2" in found.message


def test_ranks_that_shuffle_the_whole_for_themselves_are_a_warning() -> None:
    (found,), _ = judged(shuffled(lambda rank: rank))
    assert (found.severity, found.cause, found.ranks) == ("warning", "shards-unshared", (0, 1, 2))
    assert "48 samples came twice" in found.message


def test_a_sampler_that_shares_is_judged_elsewhere() -> None:
    assert judged(ranks(Script(world_size=RANKS))) == ([], [])
    assert judged(ranks(Script(world_size=RANKS, sampler_seed=lambda rank: rank))) == ([], [])


def test_ranks_that_go_through_all_in_order_deliver_the_same() -> None:
    (found,), _ = judged(shuffled(lambda rank: 0, shuffle=False))
    assert found.cause == "shards-overlap"


def passes(content: Callable[[int, int], str], *, epochs: Sequence[int | None]) -> Ranks:
    return {
        rank: [
            row
            for number, epoch in enumerate(epochs)
            for row in stream([f"{rank} {content(number, at)}" for at in range(4)], rank, number=number, epoch=epoch)
        ]
        for rank in range(RANKS)
    }


def test_a_stream_whose_epoch_moves_and_whose_batches_do_not_is_found() -> None:
    (found,) = streamed(passes(lambda number, at: f"{at}", epochs=[0, 1, 2]))
    assert (found.severity, found.cause, found.step, found.ranks) == ("error", "epoch-order", 4, (0, 1, 2))
    assert found.name == f"{STREAM}.batch"
    assert "although its epoch moved from 0 to 1" in found.message
    assert "the same in 1 later pass" in found.message


@pytest.mark.parametrize("epochs", [[None, None], [0, 0]])
def test_a_stream_that_is_not_told_of_epochs_may_repeat_itself(epochs: list[int | None]) -> None:
    assert streamed(passes(lambda number, at: f"{at}", epochs=epochs)) == []


def test_a_stream_with_an_order_for_each_epoch_is_clean() -> None:
    assert streamed(passes(lambda number, at: f"{number} {at}", epochs=[0, 1, 2])) == []


def guard(rank: int, reason: int, *, name: str = "guard") -> Ranks:
    begun = facts(4, STREAM, {"pass": 1, "num_workers": 0})
    return {rank: [*train_step(3, rank), *begun, Row(4, "data", f"{STREAM}.{name}", "int64[]", f"{reason}", reason)]}


def guarded(written: Ranks, known: Sequence[Finding] = ()) -> tuple[list[Finding], list[str]]:
    return guard_findings(0, {rank: trace_of(rows, rank=rank) for rank, rows in written.items()}, known)


@pytest.mark.parametrize(
    ("reason", "told"), [(1, "was not called"), (2, "did not reach the copies"), (7, "had no effect")]
)
def test_what_the_guard_objects_to_is_a_finding(reason: int, told: str) -> None:
    (found,), notes = guarded({**guard(0, reason), **guard(2, reason)})
    assert (found.cause, found.step, found.ranks, found.phase) == ("epoch-guard", 4, (0, 2), "data")
    assert found.name == f"{STREAM}.guard"
    assert f"{STREAM}, pass 1: set_epoch" in found.message
    assert told in found.message
    assert notes == []


def test_what_the_guard_mended_is_a_note() -> None:
    found, notes = guarded({**guard(0, 1, name="guard_fixed"), **guard(1, 1, name="guard_fixed")})
    assert found == []
    assert notes == [f"{STREAM}: set_epoch was called for 1 pass on ranks 0 and 1 (epoch_guard=fix)"]


def test_the_order_itself_says_more_than_the_guard() -> None:
    known = streamed(passes(lambda number, at: f"{at}", epochs=[0, 1]))
    assert guarded(guard(0, 2), known)[0] == []
