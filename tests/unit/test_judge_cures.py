"""What is advised against an operator that is not deterministic: nothing that is known not to cure it."""

from dataclasses import replace
from typing import Any

import pytest

from ddp_repro.judge.cures import Said, Setting, cure, cure_of, remedy, setting_of
from ddp_repro.judge.diagnosis import diagnose
from ddp_repro.judge.divergence import LaunchDivergence, compare_launches
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.looking import Look, with_cure, with_module, with_operator
from ddp_repro.judge.operators import Evidence, Operator, OperatorDivergence
from tests.unit.synthetic import Ranks, Row, Script, changed, identity, launch_of, ranks

CLEAN = ranks(Script(world_size=3))
ON, LEFT = Setting(is_deterministic=True), Setting()
LISTED = [Said(words="index_put with accumulate=True when called on a CPU tensor: acts so", has_form=True)]
ON_GPUS = [Said(words="cumsum when called on a CUDA tensor: raises an error", has_form=False)]
FINDING = Finding(
    witness="launches", severity="error", cause="backward-operator", launches=(0, 1), step=3, phase="grad_local",
    message="it differs", advice="try everything",
)  # fmt: skip


def parted(operator: str, evidence: Evidence = "output") -> OperatorDivergence:
    made = Operator(call="a#0", module="a", operator=operator, source="a.py:1", node="", reads="", leaves="")
    return OperatorDivergence(evidence=evidence, operator=made, rank=0, step=3)


def advised(operator: str, said: list[Said], setting: Setting = LEFT, evidence: Evidence = "output") -> str:
    return cure_of(parted(operator, evidence), said, setting)


def test_what_torch_lists_is_told_with_what_torch_says() -> None:
    told = advised("aten::index_put", LISTED)
    assert told.startswith("set determinism=debug, or torch.use_deterministic_algorithms(True)")
    assert "threads=1" in told
    assert LISTED[0].words in told
    assert "threads=1" not in advised("aten::index_put", LISTED, Setting(threads=1))


def test_no_switch_that_was_on_is_advised() -> None:
    for told in (advised("aten::index_put", LISTED, ON), advised("aten::mul.Tensor", [], ON), cure(ON)):
        assert "determinism=debug" not in told
        assert "Python threads" in told
    assert remedy(ON) == "determinism=debug was in force already"
    assert remedy(LEFT) == "try determinism=debug"


def test_what_torch_does_not_list_is_not_promised_to_be_cured() -> None:
    told = advised("aten::add_.Tensor", [])
    assert "torch does not list aten::add_.Tensor as nondeterministic" in told
    assert "Python threads" in told
    assert "determinism=debug is not known to help" in told
    assert "set determinism" not in told


def test_what_is_listed_for_gpus_alone_says_nothing_of_a_rank_without_one() -> None:
    assert "torch does not list aten::cumsum" in advised("aten::cumsum", ON_GPUS)
    told = advised("aten::cumsum", ON_GPUS, Setting(has_gpu=True))
    assert "torch has no deterministic form of aten::cumsum, and determinism=debug would stop there" in told
    assert "fixes what cuBLAS and cuDNN choose" in advised("aten::convolution", [], Setting(has_gpu=True))


def test_an_operator_of_someone_else_is_beyond_torchs_settings() -> None:
    told = advised("planted::noisy", [])
    assert told.startswith("planted::noisy is no operator of torch's own, and no setting of torch's reaches into it")


@pytest.mark.parametrize("setting", [ON, LEFT])
def test_what_comes_from_outside_is_looked_for_there(setting: Setting) -> None:
    told = advised("aten::mul.Tensor", [], setting, "input")
    assert "numbers that no seed reaches" in told
    assert "Python threads" in told
    assert "written to between steps" in told
    assert ("determinism=debug helps only" in told) != setting.is_deterministic
    assert advised("aten::mul.Tensor", [], setting, "path").startswith("look for what decides whether it is called")


def test_of_a_collective_nothing_more_is_known() -> None:
    assert advised("c10d::allreduce_", []) == ""
    assert with_cure(FINDING, "", parted("c10d::allreduce_")) is FINDING


def test_what_is_known_stands_instead_of_what_may_help_against_any() -> None:
    assert with_cure(FINDING, "a cure", parted("aten::mm")).advice == "a cure"
    optimizer = replace(FINDING, cause="optimizer")
    assert with_cure(optimizer, "a cure", parted("aten::mm")).advice == "try everything; a cure"
    reduction = replace(FINDING, cause="reduction-order")
    assert with_cure(reduction, "a cure", parted("aten::add.Tensor", "input")) is reduction


def test_twins_are_advised_to_look_at_what_they_override() -> None:
    a, b = launch_of(CLEAN), launch_of({**CLEAN, 1: changed(CLEAN[1], step=2, phase="loss")}, index=1)
    found = compare_launches(a, b)
    assert found is not None
    told = diagnose(a, b, found, witness="twins").advice
    assert told.startswith("look for where what the variants override reaches it")
    assert told.endswith(cure(Setting(threads=1)))


def test_no_operator_is_blamed_for_what_it_reads() -> None:
    twins = replace(FINDING, witness="twins", title="nondeterministic operator in backward")
    assert with_operator(twins, parted("aten::mul.Tensor", "input")).title == twins.title
    plain = replace(FINDING, title="nondeterministic operator in backward")
    assert with_operator(plain, parted("aten::mul.Tensor")).title == plain.title
    assert (
        with_operator(plain, parted("aten::mul.Tensor", "input")).title == "the backward reads what is not reproducible"
    )


def _look(phase: str) -> Look:
    row = Row(3, phase, "blocks.0.fused", "float32[2]", "a")
    a, b = (launch_of({0: [replace(row, content=content)]}, index=at) for at, content in enumerate("ab"))
    found: LaunchDivergence | None = compare_launches(a, b)
    return Look(parted=found, operator=None)


def test_what_no_operator_shows_is_narrowed_to_the_module() -> None:
    told = with_module(FINDING, _look("forward")).message
    assert told == "it differs; the first module whose output differs is blocks.0.fused"
    assert with_module(FINDING, _look("loss")) is FINDING


def _diagnosed(written: Ranks, **told: Any) -> Finding:
    identities = dict.fromkeys(CLEAN, identity(experiment__world_size=3, **told))
    a, b = (replace(launch_of(one, index=at), identities=identities) for at, one in enumerate((CLEAN, written)))
    found = compare_launches(a, b)
    assert found is not None
    return diagnose(a, b, found)


@pytest.mark.parametrize(
    ("phase", "cause"),
    [("loss", "forward-operator"), ("grad_local", "backward-operator"), ("grad_step", "gradient-processing")],
)
def test_a_diagnosis_advises_by_what_was_in_force(phase: str, cause: str) -> None:
    other = {**CLEAN, 1: changed(CLEAN[1], step=2, phase=phase)}
    found = _diagnosed(other)
    assert found.cause == cause
    assert "try determinism=debug" in found.advice
    found = _diagnosed(other, experiment__determinism_in_force={"deterministic_algorithms": "error"})
    assert "try determinism=debug" not in found.advice
    assert "were on" in found.advice or "was in force already" in found.advice


def test_what_was_in_force_is_read_from_the_rank() -> None:
    launch = launch_of(CLEAN)
    assert setting_of(launch, 0) == Setting(threads=1)
    assert setting_of(launch, 9) == Setting()
    told = identity(
        experiment__determinism_in_force={"deterministic_algorithms": "warn"}, hardware__gpus=["H200"],
        environment__threads=2,
    )  # fmt: skip
    assert setting_of(replace(launch, identities={0: told}), 0) == Setting(threads=2, has_gpu=True)
