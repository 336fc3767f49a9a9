from dataclasses import replace
from typing import Any

import pytest

from ddp_repro.judge.agreement import ranks_finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.majority import outside_majority
from tests.unit.synthetic import PARAMETERS, Ranks, Row, Script, changed, launch_of, ranks

FOUR = ranks(Script(world_size=4))
TWO = ranks(Script(world_size=2))


def found_in(written: Ranks, **options: Any) -> Finding:
    found = ranks_finding(launch_of(written), **options)
    assert found is not None
    assert (found.witness, found.severity, found.launches) == ("ranks", "error", (0,))
    return found


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_clean_ranks_agree_though_data_losses_and_buffers_after_the_step_differ(world_size: int) -> None:
    assert ranks_finding(launch_of(ranks(Script(world_size=world_size)))) is None


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ({"step": -1, "phase": "init", "name": "head.weight"}, "replica-initialisation"),
        ({"step": 2, "phase": "buffer", "spec": "float32[4] replicated"}, "replica-buffers"),
        ({"step": 2, "phase": "grad_reduced", "name": "conv.bias"}, "gradient-not-synchronised"),
        ({"step": 2, "phase": "param", "name": "conv.bias"}, "replica-parameters"),
    ],
)
def test_the_odd_rank_is_named_with_step_phase_and_name(where: dict[str, Any], cause: str) -> None:
    found = found_in({**FOUR, 2: changed(FOUR[2], **where)})
    assert (found.cause, found.step, found.ranks, found.phase) == (cause, where["step"], (2,), where["phase"])
    assert found.name == where.get("name", "norm.mean")
    assert "rank 2 differs from ranks 0, 1 and 3" in found.message


def test_of_two_ranks_both_are_named_and_it_is_said_why() -> None:
    found = found_in({**TWO, 1: changed(TWO[1], step=1, phase="param", name="conv.bias")})
    assert found.ranks == (0, 1)
    assert "no majority tells which is wrong" in found.message


def test_exactly_the_tensors_concerned_are_named() -> None:
    rows = changed(changed(FOUR[3], step=1, phase="param", name="conv.bias"), step=1, phase="param", name="head.weight")
    found = found_in({**FOUR, 3: changed(rows, step=2, phase="param")})
    assert found.names == ("conv.bias", "head.weight")
    assert "2 tensors of 3 concerned: conv.bias and head.weight" in found.message


def test_the_first_step_wins_and_then_the_first_phase() -> None:
    rows = changed(changed(FOUR[1], step=1, phase="param"), step=1, phase="grad_reduced", name="conv.bias")
    found = found_in({**FOUR, 1: rows, 2: changed(FOUR[2], step=2, phase="grad_reduced", name="conv.bias")})
    assert (found.step, found.phase, found.ranks) == (1, "grad_reduced", (1,))


def test_a_gradient_that_was_not_reduced_is_recognised() -> None:
    local = {(row.step, row.name): row.content for row in FOUR[3] if row.phase == "grad_local"}
    rows = [
        replace(row, content=local[row.step, row.name])
        if row.phase == "grad_reduced" and row.name in PARAMETERS and row.step >= 1
        else row
        for row in FOUR[3]
    ]
    found = found_in({**FOUR, 3: rows})
    assert (found.step, found.ranks, found.names) == (1, (3,), PARAMETERS)
    assert "on rank 3 the reduced gradient equals the local one" in found.message


def test_a_moment_that_is_replicated_and_differs_is_told() -> None:
    held = {
        rank: [replace(row, spec=f"{row.spec} replicated") if row.name.endswith("exp_avg") else row for row in rows]
        for rank, rows in FOUR.items()
    }
    assert ranks_finding(launch_of(held)) is None
    found = found_in({**held, 2: changed(held[2], step=2, phase="optimizer", name="conv.bias.exp_avg")})
    assert (found.cause, found.step, found.ranks, found.name) == ("replica-state", 2, (2,), "conv.bias.exp_avg")


def test_another_learning_rate_on_one_rank_is_said() -> None:
    rows = changed(changed(FOUR[0], step=2, phase="optimizer", name="group0.lr"), step=2, phase="param")
    found = found_in({**FOUR, 0: rows})
    assert (found.cause, found.phase, found.ranks) == ("replica-hyperparameters", "param", (0,))
    assert "group0.lr of the optimizer is not the same on all ranks" in found.message


def test_a_shape_that_differs_is_a_disagreement() -> None:
    rows = [
        replace(row, spec="float32[9] replicated") if (row.step, row.phase) == (1, "param") else row for row in FOUR[2]
    ]
    found = found_in({**FOUR, 2: rows})
    assert (found.step, found.phase, found.ranks) == (1, "param", (2,))


def test_a_rank_that_skips_a_step_is_found_at_that_step() -> None:
    """Without its step, the next forward and backward count to the same one: they are its second."""
    steps: list[Row] = []
    for row in FOUR[1]:
        if row.step == 2 and row.phase in ("grad_step", "param", "optimizer"):
            continue
        steps.append(replace(row, step=row.step - 1) if row.step > 2 else row)
    found = found_in({**FOUR, 1: steps})
    assert (found.cause, found.step, found.phase, found.ranks) == ("control-flow", 2, "optimizer", (1,))


def test_a_rank_that_makes_fewer_steps_is_found_where_it_ends() -> None:
    found = found_in({**FOUR, 3: [row for row in FOUR[3] if row.step < 3]})
    assert (found.cause, found.step, found.ranks) == ("control-flow", 3, (3,))
    unmarked = {
        rank: [replace(row, spec=row.spec.removesuffix(" replicated")) for row in rows] for rank, rows in FOUR.items()
    }
    found = found_in({**unmarked, 3: [row for row in unmarked[3] if row.step < 3]})
    assert (found.cause, found.step, found.phase, found.ranks) == ("control-flow", 3, "optimizer", (3,))


def test_only_what_is_marked_as_replicated_is_compared() -> None:
    rows = [replace(row, spec=row.spec.removesuffix(" replicated")) for row in changed(FOUR[1], step=1, phase="param")]
    unmarked = {
        rank: [replace(row, spec=row.spec.removesuffix(" replicated")) for row in rows] for rank, rows in FOUR.items()
    }
    assert ranks_finding(launch_of({**unmarked, 1: rows})) is None


def test_steps_after_the_end_of_what_is_whole_are_left_out() -> None:
    cut = {**FOUR, 3: [row for row in FOUR[3] if row.step < 3]}
    assert ranks_finding(launch_of(cut), before=2) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("aaab", ((3,), True)),
        ("abaa", ((1,), True)),
        ("aabb", ((0, 1, 2, 3), False)),
        ("ab", ((0, 1), False)),
        ("abc", ((0, 1, 2), False)),
        ("aab", ((2,), True)),
    ],
)
def test_a_majority_is_more_than_half(values: str, expected: tuple[tuple[int, ...], bool]) -> None:
    assert outside_majority(dict(enumerate(values))) == expected


def test_sixty_four_ranks_are_compared() -> None:
    many = {rank: FOUR[rank % 4] for rank in range(64)}
    many[37] = changed(FOUR[1], step=1, phase="param", name="conv.bias")
    found = found_in(many)
    assert (found.step, found.phase, found.name, found.ranks) == (1, "param", "conv.bias", (37,))


def test_a_gradient_changed_by_rank_before_the_optimizer_is_told_from_one_never_reduced() -> None:
    found = found_in({**FOUR, 2: changed(FOUR[2], step=2, phase="grad_step")})
    assert (found.cause, found.step, found.phase, found.ranks) == ("gradient-processing", 2, "grad_step", (2,))
    assert found.names == PARAMETERS
    assert "depends on the rank" in found.message
    assert "rank 2 differs from ranks 0, 1 and 3" in found.message


def test_gradients_of_parameters_that_are_not_replicated_may_differ() -> None:
    unmarked = {
        rank: [replace(row, spec=row.spec.removesuffix(" replicated")) if row.phase == "param" else row for row in rows]
        for rank, rows in FOUR.items()
    }
    assert ranks_finding(launch_of({**unmarked, 2: changed(unmarked[2], step=2, phase="grad_step")})) is None


def test_a_step_whose_backward_never_synchronised_is_found_by_what_the_optimizer_gets() -> None:
    """The last micro-batches of an epoch, all in no_sync: no gradient is reduced, each rank steps on its own."""
    written = {
        rank: [
            replace(row, content=f"{row.content} of {rank}") if (row.step, row.phase) == (3, "grad_step") else row
            for row in rows
            if (row.step, row.phase) != (3, "grad_reduced")
        ]
        for rank, rows in FOUR.items()
    }
    found = found_in(written)
    assert (found.cause, found.step, found.phase) == ("gradient-not-synchronised", 3, "grad_step")
    assert (found.ranks, found.names) == ((0, 1, 2, 3), PARAMETERS)
    assert "no backward of this step reduced it" in found.message


def test_a_backward_in_no_sync_after_the_reduction_is_found() -> None:
    def late(rank: int, rows: list[Row]) -> list[Row]:
        at = next(at for at, row in enumerate(rows) if (row.step, row.phase) == (1, "grad_step"))
        again = [Row(1, "grad_local", name, "float32[8]", f"sum of {rank} {name}") for name in PARAMETERS]
        step = [
            replace(row, content=f"sum of {rank} {row.name}") if (row.step, row.phase) == (1, "grad_step") else row
            for row in rows
        ]
        return [*step[:at], *again, *step[at:]]

    found = found_in({rank: late(rank, rows) for rank, rows in FOUR.items()})
    assert (found.cause, found.step, found.phase) == ("gradient-not-synchronised", 1, "grad_step")
    assert "a backward after the reduction added to it" in found.message


def test_a_forward_that_one_rank_makes_alone_is_not_compared() -> None:
    extra = Row(2, "buffer", "norm.mean", "float32[4] replicated", "mean 2")
    for phase in ("loss", "grad_reduced"):
        at = next(at for at, row in enumerate(FOUR[0]) if (row.step, row.phase) == (2, phase))
        assert ranks_finding(launch_of({**FOUR, 0: [*FOUR[0][:at], extra, *FOUR[0][at:]]})) is None


def test_only_some_tensors_that_were_not_reduced_are_named() -> None:
    def unreduced(rank: int, rows: list[Row]) -> list[Row]:
        local = {(row.step, row.name): row.content for row in rows if row.phase == "grad_local"}
        is_concerned = {(row.step, row.phase, row.name) for row in rows if row.step >= 1} & {
            (step, "grad_reduced", "head.weight") for step in range(1, 9)
        }
        return [
            replace(row, content=local[row.step, row.name]) if (row.step, row.phase, row.name) in is_concerned else row
            for row in rows
        ]

    found = found_in({rank: unreduced(rank, rows) for rank, rows in FOUR.items()})
    assert (found.cause, found.step, found.names) == ("gradient-not-synchronised", 1, ("head.weight",))
    assert "on every rank the reduced gradient equals the local one: it was not reduced" in found.message


def _shifted(rows: list[Row], step: int) -> list[Row]:
    """Return the rows with one more step, of a local gradient and past DDP, before ``step``."""
    extra = [
        Row(step, "loss", "loss", "float32[]", "on ones", 1.0),
        *(Row(step, "grad_local", name, "float32[8]", f"ones {name}") for name in PARAMETERS),
        *(Row(step, "grad_reduced", name, "float32[8] replicated", f"ones {name}") for name in PARAMETERS),
        *(Row(step, "grad_step", name, "float32[8]", f"ones {name}") for name in PARAMETERS),
        *(Row(step, "param", name, "float32[8] replicated", f"ones {name}") for name in PARAMETERS),
    ]
    before = [row for row in rows if row.step < step]
    return [*before, *extra, *(replace(row, step=row.step + 1) for row in rows if row.step >= step)]


def test_a_rank_that_makes_a_step_more_is_found_at_that_step() -> None:
    """What is reduced in its next step is what the others reduce in this one."""
    found = found_in({**FOUR, 0: _shifted(FOUR[0], 2)})
    assert (found.cause, found.step, found.ranks) == ("control-flow", 2, (0,))
    assert (found.phase, found.name) == ("optimizer", "step")
    assert "optimizer steps in all" in found.message


def test_an_optimizer_that_one_rank_does_not_step_is_found_by_its_parameters() -> None:
    """Two optimizers, of which the first one counts: the second rests on one rank."""
    second = {
        rank: [
            *rows,
            *(
                Row(2, phase, f"other.{name}", f"float32[8]{mark}", f"other {phase} {name}")
                for phase, mark in (("grad_step", ""), ("param", " replicated"))
                for name in PARAMETERS
            ),
        ]
        for rank, rows in FOUR.items()
    }
    found = found_in({**second, 3: FOUR[3]})
    assert (found.cause, found.step, found.ranks, found.phase) == ("control-flow", 2, (3,), "param")
    assert found.names == tuple(f"other.{name}" for name in PARAMETERS)
    assert "an optimizer steps other.conv.weight on ranks 0 to 2 and not, or less often, on rank 3" in found.message


def test_a_rank_that_ends_by_itself_while_the_others_fail_is_found() -> None:
    written = {**FOUR, 1: [row for row in FOUR[1] if row.step < 3]}
    launch = launch_of(written)
    traces = {rank: trace if rank == 1 else replace(trace, end="failed") for rank, trace in launch.traces.items()}
    found = ranks_finding(replace(launch, traces=traces), before=2)
    assert found is not None
    assert (found.cause, found.step, found.ranks) == ("control-flow", 3, (1,))
    assert (found.phase, found.name) == ("optimizer", "step")
    assert "rank 1 ended after 3 optimizer steps, ranks 0, 2 and 3 went on" in found.message


def _by_hand(written: Ranks) -> Ranks:
    """Return the training without DDP: nothing is marked as replicated, and the optimizer's parameters as unmanaged."""
    concerned = ("init", "grad_reduced", "grad_step", "param")

    def spec(row: Row) -> str:
        bare = row.spec.removesuffix(" replicated")
        return f"{bare} unmanaged" if row.phase in concerned and row.name in PARAMETERS else bare

    return {rank: [replace(row, spec=spec(row)) for row in rows] for rank, rows in written.items()}


def _left_out(written: Ranks, name: str, *, until: int = 99) -> Ranks:
    """Return the training with one parameter that each rank steps on its own, until it is averaged."""
    phases = ("grad_reduced", "grad_step", "param")
    return {
        rank: [
            replace(row, content=f"{row.content} of {rank}")
            if row.name == name and row.phase in phases and row.step < until
            else row
            for row in rows
        ]
        for rank, rows in written.items()
    }


def test_a_parameter_that_averaging_by_hand_leaves_out_is_found() -> None:
    found = found_in(_left_out(_by_hand(FOUR), "conv.bias"))
    assert (found.cause, found.step, found.phase) == ("gradient-not-synchronised", 0, "grad_reduced")
    assert (found.names, found.ranks) == (("conv.bias",), (0, 1, 2, 3))


def test_parameters_kept_equal_by_hand_are_clean() -> None:
    assert ranks_finding(launch_of(_by_hand(FOUR))) is None


def test_parameters_that_are_averaged_now_and_then_are_not_blamed() -> None:
    assert ranks_finding(launch_of(_left_out(_by_hand(FOUR), "conv.bias", until=3))) is None


def test_parameters_with_which_the_ranks_begin_differently_are_their_own() -> None:
    own = _left_out(_by_hand(FOUR), "conv.bias")
    begun = {rank: changed(rows, f"own {rank}", phase="init", name="conv.bias") for rank, rows in own.items()}
    assert ranks_finding(launch_of(begun)) is None


def test_gradients_may_differ_where_the_parameters_do_not() -> None:
    """An optimizer that reduces by itself, within its step."""
    written = {
        rank: [
            replace(row, content=f"{row.content} of {rank}") if row.phase in ("grad_reduced", "grad_step") else row
            for row in rows
        ]
        for rank, rows in _by_hand(FOUR).items()
    }
    assert ranks_finding(launch_of(written)) is None


def test_gradients_that_wait_for_unused_parameters_are_told_from_a_reduction_that_was_left_out() -> None:
    waiting = {
        rank: [
            replace(row, content=f"local 0 {rank} {row.name}", spec="float32[8] replicated")
            if (row.step, row.phase) == (0, "grad_reduced")
            else row
            for row in rows
        ]
        for rank, rows in FOUR.items()
    }
    assert found_in(waiting).cause == "gradient-not-synchronised"
    unused = {
        rank: [row for row in rows if not (row.phase.startswith("grad") and row.name == "conv.bias")]
        for rank, rows in waiting.items()
    }
    found = found_in(unused)
    assert (found.cause, found.phase, found.name) == ("unused-parameters", "grad_reduced", "conv.weight")
    assert "conv.bias got no gradient on any rank" in found.message
    assert "find_unused_parameters" in found.advice


def test_it_is_told_since_when_a_parameter_may_differ() -> None:
    """What writes to one between steps, outside of the optimizer, shows in the step after."""
    found = found_in({**FOUR, 2: changed(FOUR[2], step=2, phase="param", name="conv.bias")})
    assert (
        "it was equal after step 1, and was written to since then: in the optimizer's step, or outside" in found.message
    )
    found = found_in({**FOUR, 2: changed(FOUR[2], step=0, phase="param", name="conv.bias")})
    assert "it was equal before step 0, and was written to since then" in found.message
