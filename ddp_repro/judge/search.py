"""Which settings must be switched off for launches to be equal: the search, apart from what answers it.

A question is a set of suspects that are off while all others are on, its answer whether launches diverge then. What is
asked for is the smallest set that has to be off. A set of suspects that diverges while all others are off is a *core*:
of each core one at least must be off, so the smallest set is the smallest one that hits every core. Cores are found as
they are needed, and the set is the smallest one wherever switching a suspect off never makes launches diverge. Where
that does not hold, the set found is still one that was seen to do, and of which none was seen to be left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Final

from ddp_repro.judge.ddmin import least

Off = frozenset[str]


class Outcome(Enum):
    """Whether launches diverge: seen to, not seen to, or nothing could be concluded."""

    YES = "diverges"
    NO = "reproducible"
    UNKNOWN = "unknown"


class Strategy(Enum):
    """In which order questions are asked.

    ``order``: the suspects off one after the other, each as well as those before it, until launches are equal; then on
    again what need not be off. ``ddmin``: halves of them first, which is quicker with many suspects.
    """

    order = "order"
    ddmin = "ddmin"


Ask = Callable[[Off], Outcome]

NOTHING: Final[Off] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The smallest set that has to be off, in the order of the suspects.

    ``cores`` has for each of its members the suspects that diverge together with it while all others are off: the
    member alone, where it needs no other. ``is_smallest`` is false where an unknown answer left a smaller set possible,
    ``is_needed`` where it left open whether each of them is needed.
    """

    off: tuple[str, ...]
    cores: tuple[tuple[str, ...], ...]
    is_smallest: bool
    is_needed: bool


def search(suspects: Sequence[str], ask: Ask, confirm: Ask, strategy: Strategy = Strategy.order) -> Found | None:
    """Return what has to be off; ``None`` where launches are not seen to be equal with everything off.

    With nothing off launches diverge. ``ask`` answers the same question alike until ``confirm``, which looks harder at
    a set that is to be the result, takes an answer back: then the search begins anew.
    """
    everything = frozenset(suspects)
    while ask(everything) is Outcome.NO:
        best, is_smallest = _best(suspects, ask, strategy)
        if confirm(frozenset(best)) is not Outcome.NO:
            continue
        return Found(
            off=best,
            cores=tuple(_core_of(one, suspects, best, (ask, confirm)) for one in best),
            is_smallest=is_smallest,
            is_needed=all(ask(frozenset(best) - {one}) is Outcome.YES for one in best),
        )
    return None


def _best(suspects: Sequence[str], ask: Ask, strategy: Strategy) -> tuple[tuple[str, ...], bool]:
    """Return the smallest set that has to be off as far as answers tell, and whether there can be no smaller one."""
    best, is_smallest = tuple(suspects), len(suspects) == 1
    if strategy is Strategy.order:
        best = _in_order(suspects, ask)
        is_smallest = len(best) == 1
    if not is_smallest:
        best, is_smallest = _smallest(suspects, ask, best)
    return _needed(best, ask), is_smallest


def _in_order(suspects: Sequence[str], ask: Ask) -> tuple[str, ...]:
    """Return a set that has to be off: suspects off in order until launches are equal, then on what need not be off."""
    off: list[str] = []
    for one in suspects:
        off.append(one)
        if ask(frozenset(off)) is Outcome.NO:
            break
    if ask(frozenset(off[-1:])) is Outcome.NO:
        return (off[-1],)
    return _needed(tuple(off), ask)


def _needed(off: tuple[str, ...], ask: Ask) -> tuple[str, ...]:
    """Return ``off`` without what need not be off; the later ones, which cost more, are tried first."""
    for one in reversed(off):
        without = tuple(other for other in off if other != one)
        if without and ask(frozenset(without)) is Outcome.NO:
            return _needed(without, ask)
    return off


def _smallest(suspects: Sequence[str], ask: Ask, best: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Return the smallest set that has to be off, smaller than ``best`` or that, and whether no smaller one can be."""
    cores: list[Off] = []
    unknown: set[Off] = set()
    while True:
        candidate = _hitting(suspects, cores, unknown, below=len(best))
        if candidate is None:
            return best, not unknown
        answer = ask(frozenset(candidate))
        if answer is Outcome.NO:
            return candidate, not unknown
        if answer is Outcome.UNKNOWN:
            unknown.add(frozenset(candidate))
        else:
            cores.append(frozenset(_core(suspects, frozenset(candidate), ask)))


def _hitting(suspects: Sequence[str], cores: Sequence[Off], unknown: set[Off], below: int) -> tuple[str, ...] | None:
    """Return the first of the smallest sets that have a member in every core; of less than ``below`` members."""
    for size in range(1, below):
        for candidate in combinations(suspects, size):
            off = frozenset(candidate)
            if off not in unknown and all(off & core for core in cores):
                return candidate
    return None


def _core(suspects: Sequence[str], off: Off, ask: Ask) -> tuple[str, ...]:
    """Return a core of the suspects that are on while ``off``, with which launches diverge, is off."""
    everything = frozenset(suspects)

    def diverges(on: Sequence[str]) -> bool:
        return ask(everything - frozenset(on)) is Outcome.YES

    return least([one for one in suspects if one not in off], diverges)


def _core_of(one: str, suspects: Sequence[str], off: Sequence[str], answers: tuple[Ask, Ask]) -> tuple[str, ...]:
    """Return a core with ``one``, a member of ``off``: that alone, or with what it needs to diverge.

    That it needs each of the others rests on launches that were equal, so it is confirmed.
    """
    ask, confirm = answers
    others, everything = frozenset(off) - {one}, frozenset(suspects)
    if ask(everything - {one}) is Outcome.YES or ask(others) is not Outcome.YES:
        return (one,)
    while True:
        core = _core(suspects, others, ask)
        less = [everything - (frozenset(core) - {member}) for member in core]
        if len(core) == 1 or all(confirm(without) is not Outcome.YES for without in less):
            return core
