"""What a search for the setting that makes launches diverge came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ddp_repro.errors import Verdict
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.outcomes import Outcomes
from ddp_repro.judge.repeats import rarest, shown
from ddp_repro.judge.search import NOTHING, Found, Outcome
from ddp_repro.judge.wording import counted, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """One that must be off: what switches it off, what that costs, and those with which it diverges only together."""

    name: str
    overrides: tuple[str, ...]
    cost: str
    together: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One outcome: the suspects that were off, what launches came to, and in how many of them it showed at least."""

    number: int
    off: tuple[str, ...]
    outcome: Outcome
    launches: int
    shown: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """The result of a search.

    ``confidence`` is how sure it is that what diverged as often as was seen does not with the culprits off, ``rarest``
    the rate of what would have been seen as surely had it still been there. ``finding`` is what was found with nothing
    off. ``diverging`` and ``equal`` are the commands that show both.
    """

    verdict: Verdict
    sentence: str
    culprits: tuple[Culprit, ...] = ()
    answers: tuple[Answer, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    confidence: float | None = None
    rarest: float | None = None
    finding: Finding | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    diverging: str = ""
    equal: str = ""
    identity: str = ""


def answers_of(outcomes: Outcomes, suspects: Sequence[str]) -> tuple[Answer, ...]:
    """Return all outcomes of a search, in the order in which they were first asked for."""
    made = sorted(outcomes.seen.items(), key=lambda item: item[1].number)
    return tuple(
        Answer(
            number=seen.number,
            off=tuple(one for one in suspects if one in off),
            outcome=seen.outcome,
            launches=seen.sample.launches,
            shown=seen.sample.shown if seen.outcome is Outcome.YES else 0,
            why=seen.why,
        )
        for off, seen in made
    )


def ends_problem(outcomes: Outcomes, everything: frozenset[str]) -> tuple[Verdict, str] | None:
    """Return the verdict and a sentence where one of the ends is not what a search needs; ``None``: both are."""
    on, off = outcomes.seen[NOTHING], outcomes.seen.get(everything)
    if on.outcome is Outcome.NO:
        told = f"{counted(on.sample.launches, 'launch')} of the command as it is were equal: there is nothing to bisect"
        return Verdict.REPRODUCIBLE, told
    if on.outcome is Outcome.UNKNOWN:
        return Verdict.NOT_JUDGED, f"the command as it is could not be judged: {on.why}"
    if off is not None and off.outcome is Outcome.YES:
        return Verdict.NOT_JUDGED, (
            "launches diverge with all suspects off as well: none of them is the reason, unless switching one off "
            "brings another fault about (bisect.skip leaves suspects on)"
        )
    if off is not None and off.outcome is Outcome.UNKNOWN:
        return Verdict.NOT_JUDGED, f"with all suspects off it could not be judged: {off.why}"
    return None


def told_of(found: Found, outcomes: Outcomes) -> tuple[str, float, float]:
    """Return a sentence on what was found, how sure it is, and the rarest divergence that would have been seen."""
    off = frozenset(found.off)
    confidence, launches = outcomes.confidence(off), outcomes.seen[off].sample.launches
    showed, of = shown(outcomes.samples)
    is_least = any(sample.alike == 1 for sample in outcomes.samples)
    rare = rarest(launches, 1.0 - confidence) if confidence < 1.0 else 0.0
    which = "it" if len(found.off) == 1 else "all of them"
    sentence = (
        f"{listed(found.off, at_most=8)}: with {which} off {counted(launches, 'launch')} were equal, "
        f"while of those that diverged it showed in {'at least ' if is_least else ''}{showed} of {of}"
    )
    return sentence, confidence, rare


def notes_on(found: Found) -> list[str]:
    """Return what a person must know of what was found."""
    notes = []
    for one, core in zip(found.off, found.cores, strict=True):
        others = [other for other in core if other != one]
        if others:
            notes.append(f"{one} diverges only together with {listed(others)}: switching off one of them is enough")
    if not found.is_needed:
        notes.append("some answers are unknown, so perhaps not all of them need be off")
    elif not found.is_smallest:
        notes.append("some answers are unknown, so a smaller set may do as well")
    return notes
