"""The search for culprits against brute force, with answers that are right, unknown, and wrong at times."""

import random
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.judge.ddmin import least
from ddp_repro.judge.outcomes import Bounds, Outcomes, OutOfLaunchesError, Seen
from ddp_repro.judge.repeats import Sample, rarest, repeats, shown, unseen
from ddp_repro.judge.search import NOTHING, Found, Off, Outcome, Strategy, search

NAMES = ("compile", "precision", "algorithms", "optimizer", "workers", "hook", "threads")

both = pytest.mark.parametrize("strategy", list(Strategy))
some = st.integers(2, len(NAMES)).map(lambda count: NAMES[:count])


@st.composite
def acting(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Off]]:
    """Draw suspects, and sets of them that diverge while all others are off."""
    suspects = draw(some)
    cores = draw(st.lists(st.frozensets(st.sampled_from(suspects), min_size=1, max_size=3), min_size=1, max_size=4))
    return suspects, cores


def diverges(off: Off, cores: list[Off]) -> bool:
    return any(not core & off for core in cores)


def subsets(suspects: tuple[str, ...]) -> list[Off]:
    return [frozenset(one) for size in range(len(suspects) + 1) for one in combinations(suspects, size)]


@both
@given(case=acting())
def test_the_smallest_set_is_found(strategy: Strategy, case: tuple[tuple[str, ...], list[Off]]) -> None:
    suspects, cores = case
    asked: list[Off] = []

    def ask(off: Off) -> Outcome:
        asked.append(off)
        return Outcome.YES if diverges(off, cores) else Outcome.NO

    found = search(suspects, ask, ask, strategy)

    assert found is not None
    assert (found.is_smallest, found.is_needed) == (True, True)
    restoring = [off for off in subsets(suspects) if not diverges(off, cores)]
    assert frozenset(found.off) in restoring
    assert len(found.off) == min(map(len, restoring))
    for member, core in zip(found.off, found.cores, strict=True):
        assert member in core
        others = frozenset(suspects) - frozenset(core)
        assert diverges(others, cores), "a core diverges while all others are off"
        assert not any(diverges(others | {one}, cores) for one in core), "and needs each of its members"


@both
@given(data=st.data(), suspects=some)
def test_whatever_the_answers_are_the_set_found_was_seen_to_do(
    strategy: Strategy, data: st.DataObject, suspects: tuple[str, ...]
) -> None:
    """Switching something off may make launches diverge, or fail: no set is smallest for sure then."""
    table = {off: data.draw(st.sampled_from(Outcome)) for off in subsets(suspects)}
    table[NOTHING], table[frozenset(suspects)] = Outcome.YES, Outcome.NO

    found = search(suspects, table.__getitem__, table.__getitem__, strategy)

    assert found is not None
    off = frozenset(found.off)
    assert table[off] is Outcome.NO
    assert all(table[off - {one}] is not Outcome.NO for one in off)
    assert found.is_needed == all(table[off - {one}] is Outcome.YES for one in off)


def test_one_culprit_takes_few_questions() -> None:
    suspects = tuple(f"suspect {number}" for number in range(16))
    for strategy, most in ((Strategy.order, 12), (Strategy.ddmin, 12)):
        asked: set[Off] = set()

        def ask(off: Off, asked: set[Off] = asked) -> Outcome:
            asked.add(off)
            return Outcome.NO if suspects[7] in off else Outcome.YES

        found = search(suspects, ask, ask, strategy)
        assert found is not None
        assert found.off == (suspects[7],)
        assert found.cores == ((suspects[7],),)
        assert len(asked) <= most, strategy


def test_none_is_found_where_all_off_diverges_too() -> None:
    assert search(NAMES, lambda off: Outcome.YES, lambda off: Outcome.YES) is None
    assert search(NAMES, lambda off: Outcome.UNKNOWN, lambda off: Outcome.UNKNOWN) is None


@given(items=st.permutations(range(9)), size=st.integers(1, 9))
def test_ddmin_keeps_what_has_the_effect_and_no_more(items: list[int], size: int) -> None:
    names = [str(item) for item in items]
    wanted = set(names[:size])
    assert set(least(names, lambda part: wanted <= set(part))) == wanted
    assert len(least(names, lambda part: bool(wanted & set(part)))) == 1


# -- answers that are wrong at times


class Launching:
    """Launches as they might come out: a divergence shows in each with some probability, in one way or in many."""

    def __init__(self, cores: list[Off], rate: float, draw: random.Random, *, is_alike: bool) -> None:
        self._cores, self._rate, self._draw, self._is_alike = cores, rate, draw, is_alike
        self._bits: dict[Off, list[int]] = {}
        self._number = 0

    def look(self, off: Off, least: int, most: int) -> Seen:
        bits = self._bits.setdefault(off, [])
        while len(bits) < most and (len(set(bits)) < 2 or len(bits) < least):
            bits.append(self._launch(off))
        alike = max(bits.count(one) for one in bits)
        outcome = Outcome.NO if alike == len(bits) else Outcome.YES
        return Seen(outcome=outcome, sample=Sample(launches=len(bits), alike=alike))

    def _launch(self, off: Off) -> int:
        if not diverges(off, self._cores) or self._draw.random() >= self._rate:
            return 0
        self._number += 1
        return 1 if self._is_alike else self._number


def simulated(launching: Launching, suspects: tuple[str, ...], strategy: Strategy) -> tuple[Found | None, Outcomes]:
    bounds = Bounds(launches=3, first=100, confidence=0.95, most=100_000)
    outcomes = Outcomes(launching.look, bounds)
    if outcomes.first().outcome is not Outcome.YES:
        return None, outcomes
    return search(suspects, outcomes.ask, outcomes.confirm, strategy), outcomes


@both
@pytest.mark.parametrize(
    ("rate", "is_alike"),
    [(1 / 3, False), (1 / 3, True), (0.15, False), pytest.param(0.08, False, marks=pytest.mark.full)],
)
def test_the_stated_confidence_is_held(strategy: Strategy, rate: float, is_alike: bool) -> None:
    """Over 1,000 searches for a culprit of seven that shows in some launches only."""
    draw = random.Random(f"{strategy} {rate} {is_alike}")
    right, stated = 0, 0.0
    for _ in range(1000):
        culprit = draw.choice(NAMES)
        found, outcomes = simulated(Launching([frozenset({culprit})], rate, draw, is_alike=is_alike), NAMES, strategy)
        right += found is not None and found.off == (culprit,)
        stated += outcomes.confidence(frozenset(found.off)) if found is not None else 0.0
    assert stated >= 950
    assert right >= 950


@both
def test_two_that_act_together_and_show_at_times(strategy: Strategy) -> None:
    draw = random.Random(f"{strategy}")
    right = 0
    for _ in range(300):
        pair = frozenset(draw.sample(NAMES, 2))
        found, _ = simulated(Launching([pair], 1 / 3, draw, is_alike=False), NAMES, strategy)
        right += found is not None and len(found.off) == 1 and found.off[0] in pair and set(found.cores[0]) == pair
    assert right >= 285


@both
def test_several_culprits_that_show_at_times_against_brute_force(strategy: Strategy) -> None:
    """Whatever sets of suspects act: what was found is one of the smallest sets that do, as often as is stated."""
    draw = random.Random(f"several {strategy}")
    right, stated = 0, 0.0
    for _ in range(400):
        suspects = NAMES[: draw.randint(3, 6)]
        cores = [frozenset(draw.sample(suspects, draw.choice((1, 1, 2)))) for _ in range(draw.randint(1, 3))]
        launching = Launching(cores, draw.uniform(0.25, 1.0), draw, is_alike=False)
        found, outcomes = simulated(launching, suspects, strategy)
        restoring = [off for off in subsets(suspects) if not diverges(off, cores)]
        assert found is not None
        right += frozenset(found.off) in restoring and len(found.off) == min(map(len, restoring))
        stated += outcomes.confidence(frozenset(found.off))
    assert stated >= 380
    assert right >= 380


def test_no_more_launches_than_may_be() -> None:
    launching = Launching([frozenset({"threads"})], 1 / 3, random.Random(4), is_alike=False)
    outcomes = Outcomes(launching.look, Bounds(launches=3, first=20, confidence=0.95, most=25))
    assert outcomes.first().outcome is Outcome.YES
    with pytest.raises(OutOfLaunchesError):
        search(NAMES, outcomes.ask, outcomes.confirm)
    assert outcomes.launches <= 25


# -- how many launches


def test_a_rate_that_is_well_known_asks_for_as_many_launches_as_it_must() -> None:
    """Of 300 launches 100 diverged: (2/3)**8 is 0.039, (2/3)**7 is 0.059."""
    known = [Sample(launches=300, alike=200)]
    assert repeats(known, 0.05) == 8
    assert unseen(known, 8) == pytest.approx((2 / 3) ** 8, rel=0.05)
    assert shown(known) == (100, 300)


@given(launches=st.integers(2, 30), data=st.data())
def test_more_is_seen_in_more_launches(launches: int, data: st.DataObject) -> None:
    samples = [Sample(launches=launches, alike=data.draw(st.integers(0, launches - 1)))]
    hidden = [unseen(samples, count) for count in range(1, 40)]
    assert all(later < earlier for earlier, later in pairwise(hidden))
    wanted = repeats(samples, 0.05)
    assert unseen(samples, wanted) <= 0.05 < (unseen(samples, wanted - 1) if wanted > 1 else 1)


def test_a_fault_that_each_launch_shows_is_no_rare_one() -> None:
    assert repeats([Sample(launches=3, alike=0)], 0.25) == 1
    assert repeats([Sample(launches=3, alike=1)], 0.25) <= 3
    assert shown([Sample(launches=3, alike=1), Sample(launches=4, alike=3)]) == (3, 7)
    assert shown([Sample(launches=3, alike=0)]) == (3, 3)


def test_the_rarest_that_shows() -> None:
    assert rarest(8, 0.05) == pytest.approx(0.312, abs=0.001)
    assert (1 - rarest(20, 0.01)) ** 20 == pytest.approx(0.01)
