"""What a cost is taken for: a ratio of launches that took turns, and nothing where the noise is larger."""

import numpy as np
import pytest

from ddp_repro.config import CostConfig, CostOptions, TrainConfig
from ddp_repro.errors import ReproError
from ddp_repro.judge.cost import Timed, judge_cost, launch_timed
from ddp_repro.judge.cost_wording import notes, sentence
from ddp_repro.judge.ratios import ratio_of
from ddp_repro.run.arms import planned_arms, timed, turns, validate_cost
from ddp_repro.run.determinism import DeterministicAlgorithms, load_profile

ARMS = [("prod", "prod"), ("debug", "prod"), ("switch", "prod")]


def launches(**times: list[float]) -> list[Timed]:
    named = {"own": "prod"}
    return [
        Timed(launch=at, arm=named.get(arm, arm), repeat=at, seconds=one, steps=50, rss_bytes=(100 + at) << 20)
        for arm, found in times.items()
        for at, one in enumerate(found)
    ]


def test_a_cost_is_found_and_so_is_the_switch_that_costs_it() -> None:
    own = [0.010, 0.0102, 0.0099, 0.0101, 0.0100, 0.0103]
    debug = [one * 1.2 * (1 + 0.002 * at) for at, one in enumerate(own)]
    cost = judge_cost(
        launches(own=own, debug=debug, switch=[one * 1.001**at for at, one in enumerate(own)]), ARMS, 0.95, []
    )
    told = sentence(cost, 0.95)
    assert told.startswith("debug costs 20.6% of a step: a step takes 1.206 times as long as with prod (1.20")
    assert "12.1 against 10.1 ms" in told
    ratio = cost.lines[2].ratio
    assert ratio is not None
    assert not ratio.is_shown or ratio.ratio < 1.01
    assert any("another ratio than 1 is shown for" in note or "no switch" in note for note in notes(cost, [], 0.95))


def test_what_is_not_larger_than_the_noise_is_not_told_as_a_cost() -> None:
    cost = judge_cost(
        launches(own=[1.0, 1.3, 0.9, 1.1, 1.2, 1.0], debug=[1.2, 1.0, 1.1, 1.0, 1.1, 1.15], switch=[1.0] * 6),
        ARMS,
        0.95,
        [],
    )
    assert "debug costs is not larger than the noise" in sentence(cost, 0.95)
    assert any("would have been missed" in note for note in notes(cost, [], 0.95))
    assert any("cudnn_tf32 act on a GPU alone" in note for note in notes(cost, ["cudnn_tf32"], 0.95))
    assert any("peak memory of a rank: +0.0 MiB with debug, within what" in note for note in notes(cost, [], 0.95))


def test_no_switch_is_blamed_where_all_together_cost_nothing() -> None:
    own = [1.0, 1.3, 0.9, 1.1, 1.2, 1.0]
    switch = [0.9 * one * (1 + at / 1e3) for at, one in enumerate(own)]
    noisy = judge_cost(launches(own=own, debug=[1.2, 1.0, 1.1, 1.0, 1.1, 1.15], switch=switch), ARMS, 0.95, [])
    told = notes(noisy, [], 0.95)[0]
    assert told.startswith("another ratio than 1 has switch 0.90")
    assert told.endswith("none is blamed: chance alone does that with one of 1 intervals in 5% of runs")
    slow = judge_cost(launches(own=own, debug=[2 * one for one in own], switch=switch), ARMS, 0.95, [])
    assert notes(slow, [], 0.95)[0].startswith("of the switches alone, another ratio than 1 is shown for switch 0.90")


def test_something_that_is_faster_is_told_so() -> None:
    cost = judge_cost(launches(own=[2.0, 2.1, 2.0] * 2, debug=[1.0, 1.05, 1.01] * 2, switch=[2.0] * 6), ARMS, 0.95, [])
    assert "debug costs nothing, it is faster by" in sentence(cost, 0.95)
    assert cost.cautions == ()


def test_three_launches_of_each_show_no_cost_however_large() -> None:
    cost = judge_cost(launches(own=[2.0, 2.1, 2.0], debug=[4.0, 4.05, 4.01], switch=[2.0] * 3), ARMS, 0.95, [])
    assert "debug costs cannot be told from noise with 3 launches of each" in sentence(cost, 0.95)
    assert [one.cause for one in cost.cautions] == ["few-launches"]
    assert "75% of cases at most" in cost.cautions[0].message


def test_only_turns_that_all_arms_took_count_and_one_is_too_few() -> None:
    some = launches(own=[1.0, 1.0, 1.0], debug=[1.0, 1.1], switch=[1.0, 1.0, 1.0])
    cost = judge_cost(some, ARMS, 0.95, ["launch 8 (debug) failed"])
    assert cost.problems == ("launch 8 (debug) failed",)
    assert cost.lines[0].ratio is None
    assert sentence(cost, 0.95) == "nothing could be concluded: launch 8 (debug) failed"
    assert judge_cost(some[:1], ARMS, 0.95, []).problems == ("fewer than two launches of each were timed",)
    assert judge_cost([], ARMS, 0.95, []).lines == ()


def test_the_same_against_itself_has_an_interval_that_covers_1_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        drift = np.exp(np.cumsum(rng.normal(0, 0.02, 6)))  # both of a pair see the same machine
        a, b = drift * np.exp(rng.normal(0, 0.03, (2, 6)))
        covered += ratio_of(list(a), list(b), 0.95).within.holds(1.0)
    assert covered / 400 == pytest.approx(0.94, abs=0.035)


def test_a_launch_is_its_ranks_median_steps() -> None:
    found = launch_timed(3, "debug", 1, [[1.0, 9.0, 1.2], [1.4, 1.3, 1.5]], [(5, None), (7, None)])
    assert found.seconds == pytest.approx(1.3)
    assert (found.steps, found.rss_bytes, found.gpu_bytes) == (3, 7, None)
    assert launch_timed(0, "a", 0, [[1.0]], [(None, 4)]).gpu_bytes == 4


def config(**options: object) -> CostConfig:
    return CostConfig(determinism=load_profile("prod"), workload={"_target_": "a.b"}, cost=CostOptions(**options))  # type: ignore[arg-type]


def test_each_switch_is_moved_alone_and_filling_memory_with_what_it_needs() -> None:
    arms, left_out = planned_arms(config(), has_gpu=False)
    assert [arm.name for arm in arms] == [
        "prod", "debug", "deterministic_algorithms", "fill_uninitialized_memory", "inductor_deterministic",
        "float32_matmul_precision",
    ]  # fmt: skip
    assert left_out == ["cudnn_deterministic", "cudnn_benchmark", "cudnn_tf32", "cublas_workspace"]
    by_name = {arm.name: arm for arm in arms}
    alone = by_name["deterministic_algorithms"]
    assert alone.determinism.deterministic_algorithms is DeterministicAlgorithms.error
    assert alone.determinism.fill_uninitialized_memory is False
    filled = by_name["fill_uninitialized_memory"]
    assert (filled.relative_to, filled.determinism.fill_uninitialized_memory) == ("deterministic_algorithms", True)
    assert filled.determinism.deterministic_algorithms is DeterministicAlgorithms.error
    assert by_name["inductor_deterministic"].determinism.deterministic_algorithms is DeterministicAlgorithms.off
    assert len(planned_arms(config(), has_gpu=True)[0]) == len(arms) + len(left_out)
    assert [arm.name for arm in planned_arms(config(switches=False), has_gpu=True)[0]] == ["prod", "debug"]
    own = config(switches=False)
    own.determinism.cudnn_benchmark = False
    assert [arm.name for arm in planned_arms(own, has_gpu=True)[0]] == ["as it is", "debug"]
    assert [arm.name for arm in planned_arms(config(against="prod"), has_gpu=True)[0]] == ["prod", "prod again"]


def test_a_script_left_as_it_is_is_filled_by_torchs_default_and_so_timed_without() -> None:
    own = CostConfig(determinism=load_profile("leave"), workload={"path": "train.py"})
    by_name = {arm.name: arm for arm in planned_arms(own, has_gpu=False)[0]}
    assert by_name["deterministic_algorithms"].determinism.fill_uninitialized_memory is False
    assert by_name["hash_seed"].determinism.deterministic_algorithms is None


def test_arms_take_turns_forwards_and_backwards() -> None:
    arms, _ = planned_arms(config(switches=False), has_gpu=False)
    made = turns(arms, 3)
    assert [turn.arm.name for turn in made] == ["prod", "debug", "debug", "prod", "prod", "debug"]
    assert [(turn.launch, turn.repeat) for turn in made] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]


def test_what_is_launched_is_timed_and_nothing_else() -> None:
    own = config(warmup=3, steps=20)
    variant = timed(own, turns(planned_arms(own, has_gpu=False)[0], 2)[1])
    assert (variant.launches, variant.config.train.max_steps, variant.config.train.evaluate) == ((1,), 23, False)
    assert variant.config.capture.timing
    assert variant.overrides == ("determinism=debug",)
    script = CostConfig(workload={"path": "train.py"}, cost=own.cost)
    variant = timed(script, turns(planned_arms(script, has_gpu=False)[0], 2)[0])
    assert variant.config.train == TrainConfig(max_steps=23)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"repeats": 1}, "cost.repeats=1"),
        ({"steps": 2}, "cost.steps=2"),
        ({"warmup": 0}, "cost.warmup=0"),
        ({"confidence": 2.0}, "cost.confidence=2.0"),
    ],
)
def test_counts_of_which_nothing_can_be_told_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ReproError) as refused:
        validate_cost(config(**options))
    assert told in str(refused.value)


def test_keys_that_would_do_nothing_are_refused() -> None:
    own = config()
    own.train.max_steps = 5
    with pytest.raises(ReproError, match=r"train\.max_steps=5 does nothing here"):
        validate_cost(own)
    watched = config()  # capture=step is the schema's own default
    with pytest.raises(ReproError, match="would be timed along"):
        validate_cost(watched)
    with pytest.raises(ReproError, match="no determinism profile nothing"):
        planned_arms(config(against="nothing"), has_gpu=False)
