"""Launches compared with each other: those of one variant as the same thing, those of two as twins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddp_repro.judge.causes import preceded
from ddp_repro.judge.comparable import LeftOut, as_twins, in_words, with_other_workers
from ddp_repro.judge.diagnosis import diagnose
from ddp_repro.judge.divergence import LaunchDivergence, compare_launches
from ddp_repro.judge.draws_between import who_drew
from ddp_repro.judge.finals import compare_finals, was_observed
from ddp_repro.judge.findings import Finding, Variant
from ddp_repro.judge.leftout import Reason
from ddp_repro.judge.wording import listed
from ddp_repro.trace.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How the launches of a run are compared; ``other_workers`` says that their number of workers may differ."""

    variants: tuple[Variant, ...] = ()
    other_workers: bool = False

    def are_twins(self, a: Launch, b: Launch) -> bool:
        """Return whether two launches are of different variants."""
        return self._variant(a) is not self._variant(b)

    def sides(self, a: Launch, b: Launch) -> tuple[Launch, Launch, LeftOut]:
        """Return two launches as they are compared, and what was left out of them."""
        if self.are_twins(a, b):
            return as_twins(a, b)
        return with_other_workers(a, b) if self.other_workers else (a, b, LeftOut())

    def difference(self, a: Launch, b: Launch) -> LaunchDivergence | None:
        """Return where two launches first differ, ``None`` where they are equal."""
        if not (was_observed(a) and was_observed(b)):
            return compare_finals(a, b)
        one, other, _ = self.sides(a, b)
        return compare_launches(one, other)

    def finding(self, a: Launch, b: Launch, *, before: int | None = None) -> Finding | None:
        """Return the finding on where two launches first differ; with ``before``, only over steps below it."""
        if not (was_observed(a) and was_observed(b)):
            found = None if before is not None else compare_finals(a, b)
            return None if found is None else self._told(a, b, diagnose(a, b, found))
        one, other, left_out = self.sides(a, b)
        found = compare_launches(one, other, before=before)
        if found is not None and before is not None:
            found = None if found.first is None else replace(found, missing=())
        if found is None:
            return None
        if not self.are_twins(a, b):
            return diagnose(one, other, found)
        told = diagnose(one, other, found, witness="twins")
        more = [*who_drew((a, b), (one, other), told), *_settings(told, left_out)]
        return self._told(a, b, replace(told, message="; ".join([told.message, *more])))

    def twins(self, launches: Sequence[Launch]) -> list[tuple[Launch, Launch]]:
        """Return the first launch of each variant with that of the first one, of those that were observed if any."""
        firsts = [next((launch for launch in launches if launch.index in one.launches), None) for one in self.variants]
        made = sorted((launch for launch in firsts if launch is not None), key=lambda launch: not was_observed(launch))
        return [(made[0], other) for other in made[1:]]

    def left_out(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Yield what was not compared between twins, and how much it was."""
        for a, b in self.twins(launches):
            if was_observed(a) and was_observed(b):
                words = in_words(self.sides(a, b)[2])
                if words:
                    yield f"{self._pair(a, b)}: compared without {listed(words)}"
            else:
                yield f"{self._pair(a, b)}: only the final parameters and buffers were compared (capture=off)"

    def _told(self, a: Launch, b: Launch, found: Finding) -> Finding:
        if not self.are_twins(a, b):
            return found
        return preceded(replace(found, witness="twins"), f"{self._pair(a, b)}: ")

    def _pair(self, a: Launch, b: Launch) -> str:
        return " and ".join(f"launch {launch.index} ({self._variant(launch).called})" for launch in (a, b))

    def _variant(self, launch: Launch) -> Variant:
        return next((one for one in self.variants if launch.index in one.launches), _NO_VARIANT)


_NO_VARIANT = Variant(overrides=(), launches=(), allow=())


def _settings(found: Finding, left_out: LeftOut) -> Iterator[str]:
    if found.phase == "grad_reduced" and left_out[Reason.SETTING]:
        yield "the bucket layout differs too"
