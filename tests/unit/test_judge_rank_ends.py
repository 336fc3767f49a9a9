"""Parameters that some ranks change after the last step are told; those that all change alike are not."""

from dataclasses import replace

import pytest

from ddp_repro.judge.rank_ends import end_finding
from ddp_repro.trace.launch import Launch
from tests.unit.synthetic import PARAMETERS, Script, changed, launch_of, ranks

WRITTEN = ranks(Script(world_size=3))
ENDS = dict.fromkeys(PARAMETERS, "as the last step left it")


def ending(ends: dict[int, dict[str, str]]) -> Launch:
    return replace(launch_of(WRITTEN), finals={rank: {"schema": 1, "param": end} for rank, end in ends.items()})


def test_ranks_that_end_alike_are_not_told() -> None:
    assert end_finding(ending(dict.fromkeys(range(3), ENDS))) is None
    assert end_finding(ending(dict.fromkeys(range(3), dict.fromkeys(PARAMETERS, "averaged")))) is None


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_a_rank_that_changes_a_parameter_after_the_last_step_is_a_warning(odd: int) -> None:
    ends = {rank: {**ENDS, "conv.bias": "changed"} if rank == odd else ENDS for rank in range(3)}
    found = end_finding(ending(ends))
    assert found is not None
    assert (found.severity, found.cause, found.witness) == ("warning", "replica-end", "ranks")
    assert (found.ranks, found.phase, found.name, found.names) == ((odd,), "param", "conv.bias", ("conv.bias",))
    assert found.step == max(row.step for row in WRITTEN[0] if row.phase == "param")


def test_what_is_each_ranks_own_is_not_told() -> None:
    own = {
        rank: [
            replace(row, spec="float32[8]", content=f"{row.content} {rank}") if row.phase == "param" else row
            for row in rows
        ]
        for rank, rows in WRITTEN.items()
    }
    ends = {rank: {"param": dict.fromkeys(PARAMETERS, f"own {rank}")} for rank in range(3)}
    assert end_finding(replace(launch_of(own), finals=ends)) is None


def test_what_differed_before_the_end_is_told_elsewhere() -> None:
    last = max(row.step for row in WRITTEN[0] if row.phase == "param")
    drifted = {**WRITTEN, 1: changed(WRITTEN[1], step=last, phase="param", name="conv.bias")}
    ends = {rank: {"param": {**ENDS, "conv.bias": f"{rank == 1}"}} for rank in range(3)}
    assert end_finding(replace(launch_of(drifted), finals=ends)) is None


def test_without_ends_nothing_is_told() -> None:
    assert end_finding(launch_of(WRITTEN)) is None
