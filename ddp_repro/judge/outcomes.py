"""Answers the questions of a search from launches, each question once, and says how sure an answer is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ddp_repro.judge.repeats import Sample, repeats, unseen
from ddp_repro.judge.search import NOTHING, Off, Outcome

_LOOSE: Final = 0.25
"""How often an answer on the way may be wrong: the result is confirmed, and a wrong answer is taken back there."""


class OutOfLaunchesError(Exception):
    """As many launches were made as may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What launches with some suspects off came to: the outcome, and how often it showed.

    Launches of an outcome that is ``YES`` end with the one in which it showed, so ``sample`` says less of them than of
    those with nothing off. ``number`` says as which outcome it was made, ``why`` why nothing could be concluded.
    """

    outcome: Outcome
    sample: Sample
    number: int = 0
    why: str = ""


Look = Callable[[Off, int, int], Seen]
"""Makes launches with these suspects off, so many at least and at most in all, and says what they came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How often is launched: ``launches`` for each outcome at least, ``first`` at most with nothing off.

    ``confidence`` is how sure the result is to be, ``most`` bounds all launches together.
    """

    launches: int
    first: int
    confidence: float
    most: int


class Outcomes:
    """The outcomes of a search so far."""

    def __init__(self, look: Look, bounds: Bounds) -> None:
        self._look = look
        self._bounds = bounds
        self.seen: dict[Off, Seen] = {}
        self._sure: dict[Off, float] = {}

    def first(self) -> Seen:
        """Return what launches with nothing off come to.

        A divergence that does not always show is waited for, and then for a second time: how often it shows decides how
        many launches each other answer takes.
        """
        bounds = self._bounds
        seen = self._seen(NOTHING, bounds.launches, bounds.first)
        while seen.outcome is Outcome.YES and seen.sample.shown < 2 and seen.sample.launches < bounds.first:
            seen = self._seen(NOTHING, seen.sample.launches + 1, seen.sample.launches + 1)
        return seen

    def ask(self, off: Off) -> Outcome:
        """Return the outcome with these suspects off."""
        if off not in self.seen:
            self._seen(off, 2, self._wanted(_LOOSE))
        return self.seen[off].outcome

    def confirm(self, off: Off) -> Outcome:
        """Return the outcome with these off from as many launches as the wanted confidence needs."""
        while self.ask(off) is Outcome.NO:
            made, wanted = self.seen[off].sample.launches, self._wanted(self._allowed)
            if made >= wanted:
                self._sure[off] = max(0.0, 1.0 - len(self.seen) * unseen(self.samples, made))
                break
            self._seen(off, wanted, wanted)
        return self.seen[off].outcome

    def confidence(self, off: Off) -> float:
        """Return how sure it is, as it was confirmed, that what diverged as often as was seen does not with these off.

        Each set that was asked for until then might have been the one in which it was overlooked.
        """
        return self._sure[off]

    @property
    def samples(self) -> list[Sample]:
        """What showed wherever launches diverged."""
        return [seen.sample for seen in self.seen.values() if seen.outcome is Outcome.YES]

    @property
    def launches(self) -> int:
        """How many launches were made."""
        return sum(seen.sample.launches for seen in self.seen.values())

    @property
    def _allowed(self) -> float:
        """How probable it may be that a divergence is overlooked in one set."""
        return (1.0 - self._bounds.confidence) / max(1, len(self.seen))

    def _wanted(self, allowed: float) -> int:
        return max(self._bounds.launches, repeats(self.samples, allowed))

    def _seen(self, off: Off, least: int, most: int) -> Seen:
        made = self.seen[off].sample.launches if off in self.seen else 0
        room = self._bounds.most - self.launches
        if most - made > room:
            raise OutOfLaunchesError
        self.seen[off] = self._look(off, least, most)
        return self.seen[off]
