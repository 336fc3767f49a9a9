"""Which passes over loaders two traces have in common, and what is left out of those that they do not."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ddp_repro.judge.deliveries import owners
from ddp_repro.judge.leftout import Marked, Reason
from ddp_repro.judge.passes import Pass, passes_of, split_name
from ddp_repro.judge.rows import Index, Mask

_OF_WORKERS: Final = re.compile(r"num_workers|worker\d+\..+|main\..+", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """The passes of one trace; ``owner`` is the place of each row's pass, -1 for none; ``told`` what its name says."""

    rows: Marked
    passes: list[Pass]
    owner: Index
    of_workers: Mask
    of_number: Mask

    def of(self, place: int) -> Index:
        """Return the rows of a pass."""
        return np.flatnonzero(self.owner == place)

    def evaluates(self, place: int) -> bool:
        """Return whether a pass is an evaluation: no loss was taken in it, although one is taken in another."""
        one = self.passes[place]
        return one.trains is False and one.clear and any(other.trains for other in self.passes)


def leave_out_workers(a: Marked, b: Marked) -> None:
    """Leave out what exists once a worker, in passes over loaders of the same name whose number of workers differs."""
    one, other = _side(a), _side(b)
    for pair in _in_order(one, other, range(len(one.passes)), range(len(other.passes)), by_name=True):
        _without_workers((one, other), pair)


def leave_out_evaluation(a: Marked, b: Marked) -> None:
    """Leave out evaluation passes that not both traces made alike, and workers' rows where their number differs.

    Loaders are numbered as they are met, so a loader that only one trace has moves the numbers of others, and a pass
    that only one makes those of later passes: training passes are paired in order, by the class of what they iterate
    over, and called alike. Evaluation passes are paired where both begin at the same step; they are alike where both
    observed as much in them.
    """
    one, other = _side(a), _side(b)
    sides = (one, other)
    evaluations = tuple([place for place in range(len(side.passes)) if side.evaluates(place)] for side in sides)
    trainings = tuple([place for place in range(len(side.passes)) if not side.evaluates(place)] for side in sides)
    for pair in _in_order(one, other, trainings[0], trainings[1]):
        _called_alike(sides, pair)
    common = [pair for pair in _at_same_step(one, other, evaluations) if _as_much(sides, pair)]
    for pair in common:
        _called_alike(sides, pair)
    for side, places, shared in zip(sides, evaluations, zip(*common, strict=True) if common else ((), ()), strict=True):
        for place in set(places) - set(shared):
            side.rows.leave_out(side.of(place), Reason.EVALUATION)


def _side(rows: Marked) -> Side:
    passes = passes_of(rows.trace)
    told = [(split_name(name) or ("", ""))[1] for name in rows.trace.names]
    return Side(
        rows=rows,
        passes=passes,
        owner=owners(rows.trace, passes),
        of_workers=_those(rows, [_OF_WORKERS.fullmatch(text) is not None for text in told]),
        of_number=_those(rows, [text == "pass" for text in told]),
    )


def _those(rows: Marked, names: Sequence[bool]) -> Mask:
    chosen: Mask = np.array(names, np.bool_)[rows.trace.name] if len(rows.trace) else np.zeros(0, np.bool_)
    return chosen


_Pair = tuple[int, int]


def _in_order(
    one: Side, other: Side, places: Sequence[int], others: Sequence[int], *, by_name: bool = False
) -> Iterator[_Pair]:
    """Pair the n-th passes of the n-th loaders of a class (or, by name, of one loader)."""
    for mine, theirs in _partners(_by_loader(one, places), _by_loader(other, others), by_name=by_name):
        yield from zip(mine, theirs, strict=False)


def _by_loader(side: Side, places: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for place in sorted(places, key=lambda place: side.passes[place].start):
        found[side.passes[place].loader].append(place)
    return found


def _partners(
    mine: dict[str, list[int]], theirs: dict[str, list[int]], *, by_name: bool
) -> Iterator[tuple[list[int], list[int]]]:
    if by_name:
        yield from ((mine[loader], theirs[loader]) for loader in mine if loader in theirs)
        return
    left = list(theirs)
    for loader, passes in mine.items():
        partner = next((name for name in left if _class(name) == _class(loader)), None)
        if partner is not None:
            left.remove(partner)
            yield passes, theirs[partner]


def _class(loader: str) -> str:
    return loader.rpartition("[")[0]


def _at_same_step(one: Side, other: Side, evaluations: Sequence[Sequence[int]]) -> list[_Pair]:
    """Pair evaluation passes over loaders of one class that begin at the same step, in order."""
    keyed: list[dict[tuple[str, int, int], int]] = []
    for side, places in zip((one, other), evaluations, strict=True):
        counts: dict[tuple[str, int], int] = defaultdict(int)
        found = {}
        for place in sorted(places, key=lambda place, side=side: side.passes[place].start):  # type: ignore[misc]
            key = (_class(side.passes[place].loader), side.passes[place].step)
            found[*key, counts[key]] = place
            counts[key] += 1
        keyed.append(found)
    return [(place, keyed[1][key]) for key, place in keyed[0].items() if key in keyed[1]]


def _as_much(sides: tuple[Side, Side], pair: _Pair) -> bool:
    """Return whether as many rows were observed in both passes, but for those that exist once a worker."""
    counts = {
        int(np.count_nonzero((side.owner == place) & ~side.of_workers)) for side, place in zip(sides, pair, strict=True)
    }
    return len(counts) == 1


def _called_alike(sides: tuple[Side, Side], pair: _Pair) -> None:
    one, other = (side.passes[place] for side, place in zip(sides, pair, strict=True))
    _without_workers(sides, pair)
    if min(one.number, other.number) >= 0 and one.number != other.number:
        for side, place in zip(sides, pair, strict=True):
            side.rows.leave_out((side.owner == place) & side.of_number, Reason.EVALUATION)
    if one.loader != other.loader:
        sides[1].rows.call(sides[1].of(pair[1]), f"{other.loader}.", f"{one.loader}.")


def _without_workers(sides: tuple[Side, Side], pair: _Pair) -> None:
    one, other = (side.passes[place].fact("num_workers") for side, place in zip(sides, pair, strict=True))
    if one is None or other is None or one == other:
        return
    for side, place in zip(sides, pair, strict=True):
        side.rows.leave_out((side.owner == place) & side.of_workers, Reason.WORKERS)
