"""What is said of seeds and of a candidate: never more than they show."""

from collections.abc import Sequence

import numpy as np
import pytest

from ddp_repro.errors import ExitCode
from ddp_repro.judge.seed_reach import cautions_of, problems_of
from ddp_repro.judge.spread import Conclusion, Spread, SpreadRules, Trial, judge_spread
from ddp_repro.judge.spread_wording import limits, sentence

COMPARED = SpreadRules(better="higher", expects_candidate=True)


def trials(a: Sequence[float], b: Sequence[float] = (), *, ends: bool = True) -> list[Trial]:
    """Return trials with the seeds 1, 2, … in which each launch ends in bits of its own."""
    made = [("A", number, value) for number, value in enumerate(a, 1)]
    made += [("B", number, value) for number, value in enumerate(b, 1)]
    return [
        Trial(launch=at, arm="A" if arm == "A" else "B", seed=seed, value=value, end=f"{at}" if ends else None)
        for at, (arm, seed, value) in enumerate(made)
    ]


def judged(given: list[Trial], rules: SpreadRules) -> Spread:
    return judge_spread(given, rules, problems_of(given, rules), cautions_of(given, rules))


def test_a_spread_is_measured_and_told() -> None:
    rules = SpreadRules()
    found = judged(trials([0.90, 0.92, 0.91, 0.93, 0.94, 0.92]), rules)
    assert (found.conclusion, found.conclusion.exit_code) == (Conclusion.MEASURED, ExitCode.REPRODUCIBLE)
    told = sentence(found, rules)
    assert "over 6 seeds the metric is 0.920 on average, with a standard deviation of 0.014" in told
    assert "from 0.900 to 0.940" in told
    assert "(95 %)" in told
    assert "is itself known to between 0.009 and 0.035 only" in limits(found, rules)[0]


@pytest.mark.parametrize(
    ("shape", "seeds"),
    [
        ("normal", 6),
        *(
            pytest.param(shape, seeds, marks=pytest.mark.full)
            for shape in ("normal", "heavy", "skewed", "coarse")
            for seeds in (7, 10)
        ),
    ],
)
def test_the_same_against_itself_is_called_better_or_worse_no_more_often_than_stated(shape: str, seeds: int) -> None:
    """In 1,000 simulated trials a claim is made in 5 % at most, to both sides together."""
    rng = np.random.default_rng(seeds)
    claims = {Conclusion.IMPROVED: 0, Conclusion.WORSE: 0, Conclusion.NOT_SHOWN: 0}
    for _ in range(1_000):
        drawn = {
            "normal": lambda: rng.normal(0.9, 0.01, (2, seeds)),
            "heavy": lambda: 0.9 + 0.01 * rng.standard_t(2, (2, seeds)),
            "skewed": lambda: 0.9 - 0.01 * rng.exponential(1, (2, seeds)),
            "coarse": lambda: rng.binomial(298, 0.95, (2, seeds)) / 298,
        }[shape]()
        claims[judge_spread(trials(*drawn.tolist()), COMPARED, [], []).conclusion] += 1
    # With six pairs the true share is 3.1 %. With ten it is 4.9 %, which 68 of 1,000 exceed in one of 200 cases.
    assert claims[Conclusion.IMPROVED] + claims[Conclusion.WORSE] <= (50 if seeds == 6 else 68)
    assert max(claims[Conclusion.IMPROVED], claims[Conclusion.WORSE]) <= 40


def test_a_real_effect_is_found_as_often_as_is_said() -> None:
    rng = np.random.default_rng(2)
    seeds, effect, found = 10, 0.01, 0
    for _ in range(200):
        a = rng.normal(0.9, 0.01, seeds)
        b = a + rng.normal(effect, 0.01, seeds)
        found += judge_spread(trials(list(a), list(b)), COMPARED, [], []).conclusion is Conclusion.IMPROVED
    assert found / 200 == pytest.approx(0.80, abs=0.08)  # the power of ten pairs at one standard deviation is 0.803


def test_a_gain_inside_the_spread_is_no_improvement_and_says_how_many_seeds_it_would_take() -> None:
    a = [0.90, 0.93, 0.91, 0.94, 0.92, 0.90, 0.93]
    b = [0.93, 0.91, 0.93, 0.93, 0.95, 0.92, 0.90]
    found = judged(trials(a, b), COMPARED)
    assert (found.conclusion, found.conclusion.exit_code) == (Conclusion.NOT_SHOWN, ExitCode.NOT_JUDGED)
    told = sentence(found, COMPARED)
    assert told.startswith("the gain of 0.006 is inside the spread of seeds (p = ")
    assert "not an improvement by this evidence; about " in told
    assert told.endswith(" seeds would be needed")
    assert any("could have shown a difference of 0.0" in note for note in limits(found, COMPARED))


def test_a_clear_gain_a_clear_loss_and_which_way_is_better() -> None:
    a, b = [0.90, 0.91, 0.92, 0.90, 0.93, 0.91], [0.95, 0.96, 0.96, 0.94, 0.98, 0.95]
    up = judged(trials(a, b), COMPARED)
    assert (up.conclusion, up.conclusion.exit_code) == (Conclusion.IMPROVED, ExitCode.REPRODUCIBLE)
    assert "the gain of 0.0450 is more than seeds explain: an improvement (6 paired seeds" in sentence(up, COMPARED)
    down = judged(trials(b, a), COMPARED)
    assert (down.conclusion, down.conclusion.exit_code) == (Conclusion.WORSE, ExitCode.DIVERGED)
    lower = SpreadRules(better="lower", expects_candidate=True)
    assert judged(trials(b, a), lower).conclusion is Conclusion.IMPROVED


def test_five_pairs_show_nothing_however_large_the_gain() -> None:
    found = judged(trials([0.1, 0.2, 0.15, 0.12, 0.11], [0.9, 0.91, 0.92, 0.93, 0.9]), COMPARED)
    assert found.conclusion is Conclusion.NOT_SHOWN
    assert [one.cause for one in found.cautions] == ["few-seeds"]
    assert "cannot reach p < 0.05 in a two-sided permutation test (p is 0.0625 at the least); 6 can" in (
        found.cautions[0].message
    )
    assert "cannot be judged with 5 paired seeds" in sentence(found, COMPARED)
    assert "about 6 seeds would be needed" in sentence(found, COMPARED)
    assert found.paired is not None
    assert found.paired.detectable is None
    assert any("could not have shown any effect" in note for note in limits(found, COMPARED))


def test_two_seeds_are_warned_of_and_one_is_nothing() -> None:
    two = judged(trials([0.1, 0.2]), SpreadRules())
    assert (two.conclusion, [one.cause for one in two.cautions]) == (Conclusion.MEASURED, ["few-seeds"])
    assert judged(trials([0.1]), SpreadRules()).conclusion is Conclusion.NOT_JUDGED
    assert judged(trials([0.1, 0.2, 0.3]), SpreadRules()).cautions == ()
    assert judged([], COMPARED).conclusion is Conclusion.NOT_JUDGED


def test_a_seed_that_reaches_nothing_is_no_seed() -> None:
    given = [Trial(launch=n, arm="A", seed=n, value=0.5, end="same") for n in range(6)]
    found = judged(given, SpreadRules())
    assert found.conclusion is Conclusion.NOT_JUDGED
    assert "the seed does not reach the script" in found.problems[0]
    assert "ended in the same bits" in found.problems[0]
    unknown = [Trial(launch=n, arm="A", seed=n, value=0.5) for n in range(6)]
    assert judged(unknown, SpreadRules()).conclusion is Conclusion.NOT_JUDGED
    # Without this, two arms of six copies each would be six pairs that all agree.
    copies = [*given, *(Trial(launch=6 + n, arm="B", seed=n, value=0.6, end="other") for n in range(6))]
    assert judged(copies, COMPARED).conclusion is Conclusion.NOT_JUDGED
    assert "candidate" in judged(copies, COMPARED).problems[1]


def test_a_metric_that_does_not_tell_trainings_apart_is_warned_of_and_so_are_seeds_that_are_one() -> None:
    constant = judged(trials([1.0] * 6), SpreadRules())
    assert (constant.conclusion, [one.cause for one in constant.cautions]) == (
        Conclusion.MEASURED,
        ["metric-constant"],
    )
    ends = ["a", "a", "b", "c"]
    given = [Trial(launch=n, arm="A", seed=n, value=0.1 * len(end) + n, end=end) for n, end in enumerate(ends)]
    found = judged(given, SpreadRules())
    assert [one.cause for one in found.cautions] == ["seeds-alike"]
    assert "seeds 0 and 1 ended in the same bits" in found.cautions[0].message
    held = judged(given, SpreadRules(baseline=[0.1, 0.2, 0.3]))
    assert held.conclusion is Conclusion.NOT_JUDGED
    assert "would count as several" in held.problems[0]


def test_a_seed_that_is_halved_makes_no_six_pairs_of_three() -> None:
    """Six seeds of which each two are one: their differences agree in pairs, which is not the evidence of six."""
    given = [Trial(launch=n, arm="A", seed=n, value=float(n // 2), end=f"a{n // 2}") for n in range(6)]
    given += [Trial(launch=6 + n, arm="B", seed=n, value=n // 2 + 0.1, end=f"b{n // 2}") for n in range(6)]
    found = judged(given, COMPARED)
    assert found.conclusion is Conclusion.NOT_JUDGED
    assert "seeds 0 and 1, seeds 2 and 3 and seeds 4 and 5 ended in the same bits" in found.problems[0]


def test_that_a_seed_arrives_is_not_proven_by_launches_that_differ_anyway() -> None:
    rng = np.random.default_rng(1)
    noise = [Trial(launch=n, arm="A", seed=n, value=float(rng.normal()), end=f"{n}") for n in range(6)]
    again = [Trial(launch=6 + n, arm="A", seed=0, value=float(rng.normal()), end=f"again {n}") for n in range(3)]
    assert [one.cause for one in judged([*noise, *again], SpreadRules()).cautions] == ["seed-unproven"]
    close = [Trial(launch=6 + n, arm="A", seed=0, value=noise[0].value + n / 1e3, end=f"again {n}") for n in range(3)]
    assert judged([*noise, *close], SpreadRules()).cautions == ()
    exact = Trial(launch=6, arm="A", seed=0, value=noise[0].value, end="0")
    assert judged([*noise, exact], SpreadRules()).cautions == ()


def test_a_candidate_that_changes_nothing_is_said_to_change_nothing() -> None:
    values = [0.90, 0.91, 0.92, 0.90, 0.93, 0.91]
    given = [
        Trial(launch=n, arm=arm, seed=n, value=value, end=f"{n}")
        for arm in ("A", "B")
        for n, value in enumerate(values)
    ]
    found = judged(given, COMPARED)
    assert (found.conclusion, [one.cause for one in found.cautions]) == (Conclusion.NOT_SHOWN, ["candidate-idle"])
    assert "moves the metric by nothing" in sentence(found, COMPARED)


def test_launches_with_the_same_seed_are_told_beside_seeds() -> None:
    given = [*trials([0.90, 0.92, 0.94]), Trial(launch=3, arm="A", seed=1, value=0.90, end="0")]
    exact = judged(given, SpreadRules())
    assert exact.own is not None
    assert exact.own.n == 3  # a repetition is no further seed
    assert exact.runs is not None
    assert exact.runs.same_bits
    assert "the same seed gives the same bits (2 launches with seed 1)" in limits(exact, SpreadRules())
    given[-1] = Trial(launch=3, arm="A", seed=1, value=0.95, end="x")
    noisy = judged(given, SpreadRules())
    assert noisy.runs is not None
    assert noisy.runs.sd == pytest.approx(0.0353553, abs=1e-7)
    assert "no less than seeds do" in limits(noisy, SpreadRules())[-1]


def test_a_later_run_is_held_to_a_baseline() -> None:
    baseline = [0.90, 0.92, 0.91, 0.93, 0.94, 0.92]
    rules = SpreadRules(baseline=baseline)
    within = judged(trials([0.93]), rules)
    assert (within.conclusion, within.conclusion.exit_code) == (Conclusion.WITHIN, ExitCode.REPRODUCIBLE)
    assert "no proof that there is none" in sentence(within, rules)
    outside = judged(trials([0.80]), rules)
    assert (outside.conclusion, outside.conclusion.exit_code) == (Conclusion.OUTSIDE, ExitCode.DIVERGED)
    assert "the metric is outside 0.88" in sentence(outside, rules)
    for short in ([0.9, 0.91], [0.9, 0.9, 0.9]):
        refused = judged(trials([0.93]), SpreadRules(baseline=short))
        assert refused.conclusion is Conclusion.NOT_JUDGED
        assert "baseline" in refused.problems[0] or "baseline" in " ".join(refused.problems)
