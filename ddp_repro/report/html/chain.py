"""The causal chain of the guilty step: which phases were equal in it, which differ, and on which ranks."""

from dataclasses import dataclass
from typing import Final

from ddp_repro.judge.wording import numbered
from ddp_repro.report.html.gathering import Gathered
from ddp_repro.report.html.places import CALLED

_NAMES: Final = 12
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One phase of the step: how many observations were compared and differ, on which ranks, and which names."""

    place: int
    called: str
    rows: int
    differing: int
    ranks: str
    names: list[str]
    left: int
    is_first: bool


def chain(gathered: Gathered, step: int) -> list[Link]:
    """Return the phases that were observed in ``step``, the first in which anything differs, in causal order."""
    concerned = [one for one in gathered.ranks if one.first_step == step]
    links: list[Link] = []
    for place in sorted(CALLED):
        rows, differing = (int(counts[step + 1, place]) for counts in (gathered.rows, gathered.differing))
        if not rows:
            continue
        names = list(dict.fromkeys(name for one in concerned for name in one.chain.get(place, [])))
        on = [one.rank for one in concerned if place in one.chain]
        links.append(
            Link(
                place=place,
                called=CALLED[place],
                rows=rows,
                differing=differing,
                ranks=numbered("rank", on) if on else "",
                names=[name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in names[:_NAMES]],
                left=max(0, len(names) - _NAMES),
                is_first=bool(differing) and not any(link.differing for link in links),
            )
        )
    return links
