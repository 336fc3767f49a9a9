from dataclasses import replace
from typing import Any

import pytest

from ddp_repro.judge.identity import compare_identities, differing_on_ranks, fields_of, in_words, label, refused
from ddp_repro.judge.invariants import as_allowed, identity_findings
from ddp_repro.judge.nodes import in_document, nodes_of, on_nodes
from ddp_repro.trace.launch import Launch
from tests.unit.synthetic import Script, identity, launch_of, ranks

CLEAN = ranks(Script(world_size=2))


def launch(index: int, *by_rank: dict[str, Any]) -> Launch:
    told = by_rank if len(by_rank) > 1 else by_rank * 2
    return replace(launch_of(CLEAN, index=index), identities=dict(enumerate(told)))


def words(*identities: dict[str, Any], allow: tuple[str, ...] = (), level: str = "same-stack") -> list[str]:
    launches = [launch(index, told) for index, told in enumerate(identities)]
    differences = compare_identities(launches, allow, level)
    return [in_words(one, range(len(launches))) + (" (allowed)" if one.allowed else "") for one in differences]


def test_fields_are_named_by_their_place() -> None:
    fields = fields_of(identity())
    assert fields["experiment.config.data.batch_size"] == 4
    assert fields["environment.variables.PYTHONHASHSEED"] == "0"
    assert not any(name.startswith("provenance") for name in fields)


def test_equal_identities_do_not_differ_whatever_their_provenance() -> None:
    assert words(identity(), identity(provenance__host="b")) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"experiment__world_size": 4}, "world size 2 against 4"),
        ({"experiment__seed": 7}, "seed 0 against 7"),
        ({"experiment__threads": 2}, "threads 1 against 2"),
        ({"experiment__config__data__batch_size": 8}, "data.batch_size 4 against 8"),
        ({"software__torch": "2.14.0"}, "torch 2.13.0 against 2.14.0"),
        ({"hardware__cores": 4}, "cores 8 against 4"),
        ({"environment__variables__PYTHONHASHSEED": None}, "PYTHONHASHSEED 0 against unset"),
        ({"environment__variables__OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS unset against 2"),
    ],
)
def test_what_differs_is_named_in_words(changes: dict[str, Any], told: str) -> None:
    assert words(identity(), identity(**changes)) == [told]


def test_with_three_launches_it_is_said_which_has_what() -> None:
    told = words(identity(), identity(experiment__seed=1), identity())
    assert told == ["seed 0 (launches 0 and 2) against 1 (launch 1)"]


def test_world_size_comes_first() -> None:
    told = words(identity(), identity(experiment__seed=1, experiment__world_size=4, software__torch="x"))
    assert [one.split()[0] for one in told] == ["world", "seed", "torch"]


@pytest.mark.parametrize(
    ("allow", "is_allowed"),
    [
        ("software.torch", True),
        ("software", True),
        ("software.*", True),
        ("software.tor", False),
        ("software.torch.git", False),
        ("experiment", False),
        ("", False),
    ],
)
def test_a_field_is_allowed_by_name_or_by_what_it_lies_in(allow: str, is_allowed: bool) -> None:
    told = words(identity(), identity(software__torch="2.14.0"), allow=(allow,))
    assert told == ["torch 2.13.0 against 2.14.0" + (" (allowed)" if is_allowed else "")]


def test_another_world_size_is_allowed_in_its_own_level_alone() -> None:
    other = identity(experiment__world_size=4)
    assert words(identity(), other, allow=("experiment",)) == ["world size 2 against 4"]
    assert words(identity(), other, allow=("experiment.world_size",)) == ["world size 2 against 4"]
    assert words(identity(), other, level="world-size-invariant") == ["world size 2 against 4 (allowed)"]


def test_numbers_and_truth_values_are_not_mixed_up() -> None:
    assert words(identity(experiment__seed=1), identity(experiment__seed=True)) == ["seed 1 against True"]
    assert words(identity(experiment__seed=[0, 1]), identity(experiment__seed=[0, True])) != []


def test_every_rank_is_compared_with_itself_in_the_other_launch() -> None:
    odd = identity(hardware__cores=4)
    assert compare_identities([launch(0, identity(), odd), launch(1, identity(), odd)], (), "same-stack") == []
    (found,) = compare_identities([launch(0, identity(), odd), launch(1, identity(), identity())], (), "same-stack")
    assert (found.field, found.values) == ("hardware.cores", [4, 8])


@pytest.mark.parametrize(
    ("changes", "cause", "severity"),
    [
        ({"software__torch": "2.14.0"}, "software-differs", "error"),
        ({"environment__threads": 2}, "environment-differs", "error"),
        ({"experiment__seed": 1}, "config-differs", "error"),
        ({"experiment__data": {"digest": "x"}}, "config-differs", "warning"),
        ({"hardware__cpu": "another cpu"}, "hardware-differs", "warning"),
    ],
)
def test_ranks_that_are_not_alike_are_found(changes: dict[str, Any], cause: str, severity: str) -> None:
    odd = launch(3, identity(), identity(), identity(**changes))
    (found,) = identity_findings(odd)
    assert (found.witness, found.cause, found.severity, found.launches) == ("invariants", cause, severity, (3,))
    assert found.ranks == (2,)
    assert "on ranks 0 and 1" in found.message
    assert "on rank 2" in found.message


def test_what_may_differ_is_a_warning_between_ranks_too() -> None:
    odd = launch(3, identity(), identity(), identity(software__torch="2.14.0", software__numpy="9"))
    (found,) = identity_findings(odd)
    assert as_allowed(found, ("software.torch",)).severity == "error"
    assert as_allowed(found, ("software.torch", "software.numpy")).severity == "warning"
    assert as_allowed(found, ("software",)).severity == "warning"


def test_ranks_are_placed_on_their_nodes() -> None:
    told = [identity(experiment__placement=[0, 0, 1], provenance__host=host) for host in ("a", "a", "b")]
    nodes = nodes_of([launch(0, *told)])
    assert nodes == {0: (0, "a"), 1: (0, "a"), 2: (1, "b")}
    assert on_nodes([2], nodes) == " on node 1 (b)"
    assert on_nodes([0, 1, 2], nodes) == on_nodes([], nodes) == on_nodes([2], {}) == ""
    assert in_document(nodes) == [
        {"node": 0, "host": "a", "ranks": [0, 1]},
        {"node": 1, "host": "b", "ranks": [2]},
    ]
    assert nodes_of([launch(0, identity(), identity())]) == {}
    assert nodes_of([launch(0, {}, {"experiment": 3})]) == {}


def test_alike_ranks_are_clean() -> None:
    assert identity_findings(launch(0, identity(), identity(provenance__host="b"))) == []
    assert differing_on_ranks(launch(0, identity(), identity()), "software") == {}


def test_labels_leave_the_group_out() -> None:
    assert label("experiment.ranks_per_node") == "ranks per node"
    assert label("experiment.data.digest") == "data.digest"
    assert label("environment.threads") == "environment.threads"


def test_what_follows_from_the_world_size_is_not_told_beside_it() -> None:
    small = identity(experiment__world_size=2, experiment__placement=[0] * 2, experiment__ranks_per_node=2)
    large = identity(experiment__world_size=16, experiment__placement=[0] * 16, experiment__ranks_per_node=16)
    differences = compare_identities([launch(0, small), launch(1, large)], (), "same-stack")
    assert len(differences) == 3
    assert [in_words(one, (0, 1)) for one in refused(differences)] == ["world size 2 against 16"]
    placed = identity(experiment__placement=[0, 1])
    spread = compare_identities(
        [launch(0, identity(experiment__placement=[0, 0])), launch(1, placed)], (), "same-stack"
    )
    assert [in_words(one, (0, 1)) for one in refused(spread)] == ["placement [0, 0] against [0, 1]"]


def test_an_option_that_is_not_a_number_is_equal_to_itself() -> None:
    launches = [
        replace(launch_of(ranks(Script())), index=index, identities={0: identity(experiment__config__nan=float("nan"))})
        for index in range(2)
    ]
    assert compare_identities(launches, (), "same-stack") == []
