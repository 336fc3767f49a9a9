"""Launches compared with each other: those of one variant as the same thing, those of two as twins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ddp_repro.judge.causes import preceded
from ddp_repro.judge.comparable import LeftOut, as_same, as_twins, in_words, with_other_workers
from ddp_repro.judge.cut import common_reach, up_to
from ddp_repro.judge.diagnosis import diagnose
from ddp_repro.judge.divergence import LaunchDivergence, compare_launches
from ddp_repro.judge.draws_between import who_drew
from ddp_repro.judge.finals import compare_finals, was_observed
from ddp_repro.judge.findings import Finding, Variant
from ddp_repro.judge.leftout import Reason
from ddp_repro.judge.wording import listed, numbered
from ddp_repro.trace.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How the launches of a run are compared; ``other_workers`` says that their number of workers may differ."""

    variants: tuple[Variant, ...] = ()
    other_workers: bool = False
    _known: dict[tuple[int, int], tuple[Launch, Launch, LeftOut]] = field(default_factory=dict, repr=False)
    _compared: dict[tuple[int, int], LaunchDivergence | None] = field(default_factory=dict, repr=False)

    def are_twins(self, a: Launch, b: Launch) -> bool:
        """Return whether two launches are of different variants."""
        return self._variant(a) is not self._variant(b)

    def sides(self, a: Launch, b: Launch) -> tuple[Launch, Launch, LeftOut]:
        """Return two launches as they are compared, and what was left out of them."""
        pair = a.index, b.index
        if pair not in self._known:
            self._known[pair] = self._sides(a, b)
        return self._known[pair]

    def _sides(self, a: Launch, b: Launch) -> tuple[Launch, Launch, LeftOut]:
        whole, before = (a, b), common_reach(a, b)
        if before is not None:
            a, b = up_to(a, before), up_to(b, before)
        if self.are_twins(a, b):
            return as_twins(a, b, whole=whole)
        if compare_launches(a, b) is None:
            return a, b, LeftOut()
        return with_other_workers(a, b, whole=whole) if self.other_workers else as_same(a, b, whole=whole)

    def difference(self, a: Launch, b: Launch) -> LaunchDivergence | None:
        """Return where two launches first differ, ``None`` where they are equal: as far as both were recorded."""
        if not (was_observed(a) and was_observed(b)):
            return compare_finals(a, b)
        one, other, _ = self.sides(a, b)
        return self._in_steps(a, b) or compare_finals(one, other)

    def _in_steps(self, a: Launch, b: Launch) -> LaunchDivergence | None:
        """Return where two launches first differ in what was observed of their steps."""
        pair = a.index, b.index
        if pair not in self._compared:
            one, other, _ = self.sides(a, b)
            self._compared[pair] = compare_launches(one, other)
        return self._compared[pair]

    def finding(self, a: Launch, b: Launch, *, before: int | None = None) -> Finding | None:
        """Return the finding on where two launches first differ; with ``before``, only over steps below it."""
        if not (was_observed(a) and was_observed(b)):
            found = None if before is not None else compare_finals(a, b)
            return None if found is None else self._told(a, b, diagnose(a, b, found))
        one, other, left_out = self.sides(a, b)
        found = self._in_steps(a, b) if before is None else compare_launches(one, other, before=before)
        if found is not None and before is not None:
            found = None if found.first is None else replace(found, missing=())
        if found is None and before is None:
            found = compare_finals(one, other)  # all that was observed is equal, and still they may end differently
            return None if found is None else self._told(a, b, diagnose(a, b, found))
        if found is None:
            return None
        limit = [] if (cut := common_reach(a, b)) is None else [f"compared up to step {cut - 1}"]
        if not self.are_twins(a, b):
            told = diagnose(one, other, found)
            return replace(told, message="; ".join([told.message, *limit]))
        told = diagnose(one, other, found, witness="twins")
        more = [*limit, *who_drew((a, b), (one, other), told), *_settings(told, left_out)]
        return self._told(a, b, replace(told, message="; ".join([told.message, *more])))

    def twins(self, launches: Sequence[Launch]) -> list[tuple[Launch, Launch]]:
        """Return the first launch of each variant with that of the first one, of those that were observed if any."""
        firsts = [next((launch for launch in launches if launch.index in one.launches), None) for one in self.variants]
        made = sorted((launch for launch in firsts if launch is not None), key=lambda launch: not was_observed(launch))
        return [(made[0], other) for other in made[1:]]

    def left_out(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Yield what was not compared, and how much it was: between twins, and between launches of the same thing."""
        words: dict[str, list[int]] = {}
        for a, b in self._same(launches):
            told = in_words(self.sides(a, b)[2])
            if told:
                words.setdefault(listed(told), [a.index]).append(b.index)
        yield from (f"{numbered('launch', numbers)}: compared without {told}" for told, numbers in words.items())
        for a, b in self.twins(launches):
            if not (was_observed(a) and was_observed(b)):
                yield f"{self._pair(a, b)}: only the final parameters and buffers were compared (capture=off)"
            elif told := in_words(self.sides(a, b)[2]):
                yield f"{self._pair(a, b)}: compared without {listed(told)}"

    def _same(self, launches: Sequence[Launch]) -> Iterator[tuple[Launch, Launch]]:
        """Yield each launch that was observed with the first one of its variant."""
        firsts: dict[int, Launch] = {}
        for launch in filter(was_observed, launches):
            first = firsts.setdefault(id(self._variant(launch)), launch)
            if first is not launch:
                yield first, launch

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
