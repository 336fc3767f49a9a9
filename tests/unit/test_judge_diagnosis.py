from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ddp_repro.judge.diagnosis import diagnose
from ddp_repro.judge.divergence import compare_launches
from ddp_repro.judge.findings import Finding
from tests.unit.synthetic import (
    UNMOVED,
    Ranks,
    Row,
    Rows,
    Script,
    changed,
    float32,
    from_step,
    identity,
    launch_of,
    ranks,
)

SCRIPT = Script(world_size=3, workers=2)
CLEAN = ranks(SCRIPT)
LOADER = "DistributedSampler[0]"


def diagnosed(a: Ranks, b: Ranks, **environment: Any) -> Finding:
    left, right = launch_of(a), launch_of(b, index=1)
    if environment:
        told = {rank: identity(**environment) for rank in a}
        left, right = replace(left, identities=told), replace(right, identities=told)
    found = compare_launches(left, right)
    assert found is not None
    return diagnose(left, right, found)


def on_rank(rank: int, edit: Callable[[Rows], Rows]) -> Ranks:
    return {**CLEAN, rank: edit(CLEAN[rank])}


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ({"step": -1, "phase": "init", "name": "conv.bias"}, "initialisation"),
        ({"step": 2, "phase": "data", "name": f"{LOADER}.batch[0]"}, "data-content"),
        ({"step": 0, "phase": "data", "name": f"{LOADER}.epoch"}, "data-source"),
        ({"step": 2, "phase": "rng", "name": "torch"}, "rng-draws"),
        ({"step": 0, "phase": "rng", "name": "torch"}, "rng-unseeded"),
        ({"step": 2, "phase": "buffer", "spec": "float32[4] replicated"}, "forward-buffers"),
        ({"step": 2, "phase": "loss", "name": "loss"}, "forward-operator"),
        ({"step": 2, "phase": "grad_local", "name": "conv.bias"}, "backward-operator"),
        ({"step": 2, "phase": "grad_reduced", "name": "conv.bias"}, "reduction-order"),
        ({"step": 2, "phase": "grad_step", "name": "conv.bias"}, "gradient-processing"),
        ({"step": 2, "phase": "param", "name": "conv.bias"}, "optimizer"),
        ({"step": 2, "phase": "buffer", "spec": "float32[4]"}, "buffers"),
        ({"step": 2, "phase": "optimizer", "name": "conv.bias.exp_avg"}, "optimizer-state"),
        ({"step": 2, "phase": "optimizer", "name": "group0.lr"}, "hyperparameters"),
    ],
)
def test_the_first_phase_that_differs_tells_the_cause(where: dict[str, Any], cause: str) -> None:
    found = diagnosed(CLEAN, on_rank(1, lambda rows: changed(rows, **where)))
    assert (found.witness, found.severity, found.cause) == ("launches", "error", cause)
    assert (found.step, found.ranks, found.phase) == (where["step"], (1,), where["phase"])
    assert found.name == where.get("name", "norm.mean")
    assert found.message
    assert found.advice
    assert "{" not in found.message + found.advice + found.title


def test_a_scaler_that_scales_otherwise_is_told() -> None:
    def scaled(content: str) -> Ranks:
        row = Row(2, "scaler", "scale", "float64[]", content, 2.0)
        return {
            rank: [one for one in rows if one.step <= 2] + [row] + [one for one in rows if one.step > 2]
            for rank, rows in CLEAN.items()
        }

    found = diagnosed(scaled("2"), {**scaled("2"), 1: scaled("4")[1]})
    assert (found.cause, found.step, found.ranks, found.phase) == ("loss-scale", 2, (1,), "scaler")


def test_a_nondeterministic_backward_is_named_with_who_got_it_by_the_reduction() -> None:
    other = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in CLEAN.items()}
    other[1] = changed(other[1], step=2, phase="grad_local", name="conv.bias")
    found = diagnosed(CLEAN, other)
    assert found.title == "nondeterministic operator in backward"
    assert (found.step, found.ranks, found.phase, found.name) == (2, (1,), "grad_local", "conv.bias")
    assert "ranks 0 and 2 got the difference through the all-reduce" in found.message
    assert "torch.use_deterministic_algorithms(True)" in found.advice
    assert "determinism=debug" in found.advice


def test_a_reduction_of_other_buckets_says_so() -> None:
    other = {
        rank: changed(from_step(rows, 2, "grad_reduced"), step=2, name="bucket_layout") for rank, rows in CLEAN.items()
    }
    found = diagnosed(CLEAN, other)
    assert (found.cause, found.ranks) == ("reduction-order", (0, 1, 2))
    assert "the bucket layout differs" in found.message
    assert "bucket layout" not in diagnosed(CLEAN, on_rank(1, lambda rows: from_step(rows, 2, "grad_reduced"))).message


def test_without_local_gradients_backward_and_reduction_are_not_told_apart() -> None:
    blind = {rank: [row for row in rows if row.phase != "grad_local"] for rank, rows in CLEAN.items()}
    other = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in blind.items()}
    assert diagnosed(blind, other).cause == "gradient"


def test_where_batches_are_not_seen_they_are_not_said_to_be_equal() -> None:
    blind = {rank: [row for row in rows if row.phase not in ("data", "rng")] for rank, rows in CLEAN.items()}
    found = diagnosed(blind, {rank: from_step(rows, 2, "loss") for rank, rows in blind.items()})
    assert (found.cause, found.step, found.phase) == ("forward-inputs", 2, "loss")
    assert "no DataLoader delivers the batches" in found.message


def test_batches_of_a_data_set_without_indices_are_not_said_to_hold_the_same_samples() -> None:
    stream = {rank: [row for row in rows if not row.name.endswith(".index")] for rank, rows in CLEAN.items()}
    other = {rank: changed(rows, step=2, phase="data", name=f"{LOADER}.batch[0]") for rank, rows in stream.items()}
    found = diagnosed(stream, other)
    assert (found.cause, found.step, found.name) == ("data-stream", 2, f"{LOADER}.batch[0]")
    assert "same samples" not in found.message + found.advice


def test_another_learning_rate_is_blamed_for_the_parameters() -> None:
    def edit(rows: Rows) -> Rows:
        rows = [replace(row, value=0.25) if (row.step, row.name) == (2, "group0.lr") else row for row in rows]
        return changed(changed(rows, step=2, phase="param"), step=2, phase="optimizer", name="group0.lr")

    found = diagnosed(CLEAN, {rank: edit(rows) for rank, rows in CLEAN.items()})
    assert (found.cause, found.phase) == ("hyperparameters", "param")
    assert "group0.lr of the optimizer differs (0.0333" in found.message
    assert "against 0.25)" in found.message


def test_a_loss_is_told_with_its_values_and_their_distance() -> None:
    def with_loss(rows: Rows, value: float) -> Rows:
        return [
            replace(row, content=str(value), value=value) if (row.step, row.phase) == (1, "loss") else row
            for row in rows
        ]

    left = {**CLEAN, 0: with_loss(CLEAN[0], 1.0)}
    right = {**CLEAN, 0: with_loss(CLEAN[0], float32(1.0 + 3 * 2**-23))}
    found = diagnosed(left, right)
    assert found.distance is not None
    assert (found.distance.max_ulp, found.distance.elements, found.distance.of) == (3, 1, 1)
    assert "(1.0 against 1.0000003576278687)" in found.message


def reshuffled(seed: int) -> Ranks:
    return ranks(replace(SCRIPT, sampler_seed=lambda rank: seed))


def test_another_shuffle_is_the_same_samples_in_another_order() -> None:
    found = diagnosed(CLEAN, reshuffled(1))
    assert (found.cause, found.step, found.phase, found.name) == ("data-order", 0, "data", f"{LOADER}.index")
    assert found.ranks == (0, 1, 2)


def test_another_order_may_fill_up_the_shards_with_other_samples() -> None:
    padded = replace(SCRIPT, length=25)
    found = diagnosed(ranks(padded), ranks(replace(padded, sampler_seed=lambda rank: 1)))
    assert (found.cause, found.step, found.name) == ("data-order", 0, f"{LOADER}.index")


def test_more_samples_twice_than_fill_up_the_shards_are_other_samples() -> None:
    def doubled(a: int, b: int) -> Ranks:
        script = replace(SCRIPT, world_size=1, shuffle=False, epochs=1)
        return {0: [replace(row, content=str(b)) if row.content == str(a) and row.name.endswith("index") else row
                    for row in ranks(script)[0]]}  # fmt: skip

    assert diagnosed(doubled(0, 1), doubled(1, 0)).cause == "data-indices"


def first_drawn(step: int, name: str, seed: str) -> Ranks:
    """Return the clean launch with a generator that nothing draws from before the batch of ``step`` is there."""

    def told(row: Row) -> Rows:
        state = UNMOVED if row.step <= step else f"{seed} {row.step}"
        return [row, Row(row.step, "rng", name, "state", state)] if row.name == "python" else [row]

    return {rank: [one for row in rows for one in told(row)] for rank, rows in CLEAN.items()}


@pytest.mark.parametrize("phase", ["loss", "grad_local", "param"])
@pytest.mark.parametrize("step", [0, 2])
def test_what_is_drawn_in_the_step_in_which_a_generator_is_first_used_is_blamed_on_it(step: int, phase: str) -> None:
    a, b = (first_drawn(step, "numpy", seed) for seed in ("a", "b"))
    found = diagnosed(a, {rank: from_step(rows, step, phase) for rank, rows in b.items()})
    assert (found.cause, found.step, found.phase, found.name) == ("rng-unseeded", step, "rng", "numpy")
    assert found.ranks == (0, 1, 2)
    assert "numpy's generator starts in another state" in found.message


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("numpy", ("a", "a")), ("torch's other", ("a", "b"))],
    ids=["is seeded in the step", "begins alike in all processes"],
)
def test_a_generator_that_is_first_used_in_the_step_is_not_blamed_where(name: str, seeds: tuple[str, str]) -> None:
    a, b = (first_drawn(2, name, seed) for seed in seeds)
    found = diagnosed(a, {rank: from_step(rows, 2, "loss") for rank, rows in b.items()})
    assert (found.cause, found.step, found.phase) == ("forward-operator", 2, "loss")


@pytest.mark.parametrize(("name", "cause"), [("python", "rng-unseeded"), ("torch", "rng-draws")])
def test_where_a_generator_is_first_drawn_from_tells_whether_it_was_seeded(name: str, cause: str) -> None:
    def used(seed: str) -> Ranks:
        def told(row: Row) -> Row:
            state = UNMOVED if row.step <= 2 else f"{seed} {row.step}"
            return replace(row, content=state) if (row.phase, row.name) == ("rng", name) else row

        return {rank: [told(row) for row in rows] for rank, rows in CLEAN.items()}

    found = diagnosed(used("a"), used("b"))
    assert (found.cause, found.step, found.phase, found.name) == (cause, 3, "rng", name)


def test_other_samples_are_not_called_another_order() -> None:
    other = [replace(row, content=str(row.value), value=row.value) for row in CLEAN[0]]
    moved = [
        replace(row, content="99", value=99.0) if (row.step, row.name) == (1, f"{LOADER}.index") else row
        for row in other
    ]
    found = diagnosed({**CLEAN, 0: other}, {**CLEAN, 0: moved})
    assert (found.cause, found.step, found.ranks) == ("data-indices", 1, (0,))


def test_batch_order_within_a_step_is_an_order() -> None:
    def swap(rows: Rows) -> Rows:
        at = [place for place, row in enumerate(rows) if (row.step, row.name) == (1, f"{LOADER}.index")]
        rows = list(rows)
        rows[at[0]], rows[at[1]] = rows[at[1]], rows[at[0]]
        return rows

    assert diagnosed(CLEAN, on_rank(0, swap)).cause == "data-order"


def test_an_unseeded_library_is_named() -> None:
    noisy = ranks(replace(SCRIPT, noise=lambda *place: f"another {place}"))
    noisy = {rank: changed(rows, step=0, name=f"{LOADER}.batch[0]") for rank, rows in noisy.items()}
    found = diagnosed(CLEAN, noisy)
    assert (found.cause, found.title) == ("unseeded-library", "numpy is not seeded")
    assert (found.step, found.phase, found.name) == (0, "data", f"{LOADER}.batch[0]")


def test_a_generator_that_drew_more_for_a_sample_is_not_called_unseeded() -> None:
    def edit(rows: Rows) -> Rows:
        rows = changed(rows, step=2, name=f"{LOADER}.worker0.numpy.after")
        return changed(rows, step=2, name=f"{LOADER}.batch[0]")

    found = diagnosed(CLEAN, on_rank(1, edit))
    assert (found.cause, found.step) == ("data-content", 2)
    assert "numpy drew more or fewer numbers for it" in found.message


def test_labels_ordered_by_hash_are_told_from_noise() -> None:
    labels = {rank: changed(rows, step=0, name=f"{LOADER}.batch[1]") for rank, rows in CLEAN.items()}
    images = {rank: changed(rows, step=0, name=f"{LOADER}.batch[0]") for rank, rows in CLEAN.items()}
    unset = {"environment__variables__PYTHONHASHSEED": None}
    found = diagnosed(CLEAN, labels, **unset)
    assert (found.cause, found.name) == ("hash-seed", f"{LOADER}.batch[1]")
    assert "PYTHONHASHSEED" in found.message
    on_one_rank = {**CLEAN, 1: labels[1]}
    assert diagnosed(CLEAN, on_one_rank, **unset).cause == "data-content"  # each process has a hash seed of its own
    assert diagnosed(CLEAN, images, **unset).cause == "data-content"
    assert "PYTHONHASHSEED is not set" in diagnosed(CLEAN, images, **unset).message
    assert diagnosed(CLEAN, labels).cause == "data-content"
    assert "PYTHONHASHSEED" not in diagnosed(CLEAN, labels).message


def test_a_worker_that_starts_elsewhere_is_named() -> None:
    name = f"{LOADER}.worker1.numpy.before"
    found = diagnosed(CLEAN, on_rank(2, lambda rows: changed(rows, step=1, name=name)))
    assert (found.cause, found.phase, found.name, found.step) == ("rng-unseeded", "rng", name, 1)
    assert "DistributedSampler[0]'s worker1" in found.message


def test_another_shape_and_another_path_are_causes_of_their_own() -> None:
    wider = [replace(row, spec="float32[9]") if (row.step, row.phase) == (1, "grad_local") else row for row in CLEAN[1]]
    found = diagnosed(CLEAN, {**CLEAN, 1: wider})
    assert (found.cause, found.ranks) == ("other-spec", (1,))
    assert "float32[8] against float32[9]" in found.message
    without = [row for row in CLEAN[1] if (row.step, row.name) != (1, "norm.mean")]
    found = diagnosed(CLEAN, {**CLEAN, 1: without})
    assert (found.cause, found.name) == ("control-flow", "norm.mean")
    assert "in launch 0 and not, or less often, in launch 1" in found.message


def test_a_launch_that_ran_longer_is_said_to() -> None:
    short = {rank: [row for row in rows if row.step < 3] for rank, rows in CLEAN.items()}
    found = diagnosed(short, CLEAN)
    assert (found.cause, found.step) == ("control-flow", 3)
    assert "only in launch 1, which ran longer" in found.message


def test_a_missing_rank_is_named() -> None:
    found = diagnosed(CLEAN, {0: CLEAN[0], 1: CLEAN[1]})
    assert (found.cause, found.ranks, found.step) == ("missing-rank", (2,), None)


def test_names_that_look_like_format_strings_are_kept_as_they_are() -> None:
    row = Row(0, "unheard of", "{name}{0}%s[red]", "float32[]", "x")
    found = diagnosed({0: [row]}, {0: [replace(row, content="y")]})
    assert (found.cause, found.name) == ("observation", row.name)
    assert "{name}{0}%s[red] (unheard of) differs" in found.message
