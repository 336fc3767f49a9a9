"""Which operators of a training have no deterministic form, or were seen to differ on the same inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from ddp_repro.errors import Verdict
from ddp_repro.judge.replacements import replacement_of
from ddp_repro.judge.wording import counted


class Kind(StrEnum):
    """Why an operator is listed."""

    NO_FORM = "no deterministic form"
    NOT_IN_USE = "has a deterministic form, not in use, seen to differ"
    UNKNOWN = "not known to use_deterministic_algorithms, seen to differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One operator at one place, over all ranks of a launch: calls, those made again, those that differed.

    ``said`` is what torch says when it refuses it, ``listed`` what its documentation says.
    """

    operator: str
    module: str
    source: str
    part: str
    node: str = ""
    calls: int = 0
    compared: int = 0
    differed: int = 0
    said: str = ""
    listed: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What it is told by."""
        return self.operator, self.module, self.source, self.part


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """An operator that is listed, why, how often it was called, and what to do; ``accepted`` by which pattern."""

    kind: Kind
    seen: Seen
    differed: int
    compared: int
    says: str
    advice: str
    accepted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What a survey came to; ``identity`` is the digest of the identity of what was surveyed."""

    verdict: Verdict
    sentence: str
    offenders: tuple[Offender, ...] = ()
    operators: int = 0
    calls: int = 0
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    identity: str = ""


def gathered(reports: Sequence[Mapping[str, Any]]) -> list[Seen]:
    """Return what the ranks of one launch saw, each operator at each place once."""
    found: dict[tuple[str, ...], Seen] = {}
    for report in reports:
        for entry in report["entries"]:
            names = ("operator", "module", "source", "part", "node", "calls", "compared", "differed", "said")
            one = Seen(**{name: entry[name] for name in names}, listed=tuple(entry["listed"]))
            known = found.get(one.place)
            found[one.place] = one if known is None else _both(known, one)
    return list(found.values())


def surveyed(on: Sequence[Seen], off: Sequence[Seen], accept: Sequence[str]) -> Surveyed:
    """Return the offenders among what was seen with deterministic algorithms on (warning only), and with them off.

    An operator that differs with them off alone has a form that they use. ``accept`` holds globs on the operator, its
    source, or both as ``operator@source``.
    """
    by_place = {one.place: one for one in off}
    offenders = [found for one in on if (found := _offender(one, by_place.pop(one.place, None))) is not None]
    offenders += [_not_in_use(one) for one in by_place.values() if one.differed]
    offenders = sorted((_accepted(one, accept) for one in offenders), key=_order)
    new = [one for one in offenders if not one.accepted]
    unused = [pattern for pattern in accept if not any(_matches(one.seen, pattern) for one in offenders)]
    places = {one.place for one in (*on, *off)}
    result = Surveyed(
        verdict=Verdict.DIVERGED if new else Verdict.REPRODUCIBLE,
        sentence=_sentence(offenders, new, len(places)),
        offenders=tuple(offenders),
        operators=len(places),
        calls=sum(one.calls for one in (*on, *off)),
        notes=tuple(f"survey.accept names {pattern}, and nothing that is listed is so called" for pattern in unused),
    )
    if not any(one.compared for one in on) or not any(one.compared for one in off):
        told = "no operator was seen: there was no forward with gradients, or all of it is compiled"
        return replace(result, verdict=Verdict.NOT_JUDGED, sentence=told, problems=(told,))
    return result


def _offender(on: Seen, off: Seen | None) -> Offender | None:
    """Return what an operator is listed as that was called with deterministic algorithms on; ``None``: it is not."""
    if on.said:
        both = on if off is None else _both(on, off)
        return _as(Kind.NO_FORM, both, on.said)
    if on.differed:
        return _as(Kind.UNKNOWN, on if off is None else _both(on, off), "; ".join(on.listed))
    return _not_in_use(off) if off is not None and off.differed else None


def _not_in_use(off: Seen) -> Offender:
    return _as(Kind.NOT_IN_USE, off, "; ".join(off.listed))


def _as(kind: Kind, seen: Seen, says: str) -> Offender:
    return Offender(
        kind=kind,
        seen=seen,
        differed=seen.differed,
        compared=seen.compared,
        says=says,
        advice=_advice(kind, seen),
    )


def _advice(kind: Kind, seen: Seen) -> str:
    replacement = replacement_of(seen.operator)
    if kind is Kind.NOT_IN_USE:
        cure = "torch.use_deterministic_algorithms(True) (determinism=debug) cures it"
        return f"{cure}; or {replacement}" if replacement else cure
    return replacement or "write it with other operators, or compute it on one thread of the CPU"


def _both(a: Seen, b: Seen) -> Seen:
    return replace(
        a,
        calls=a.calls + b.calls,
        compared=a.compared + b.compared,
        differed=a.differed + b.differed,
        said=a.said or b.said,
    )


def _accepted(one: Offender, accept: Sequence[str]) -> Offender:
    return replace(one, accepted=next((pattern for pattern in accept if _matches(one.seen, pattern)), ""))


def _matches(seen: Seen, pattern: str) -> bool:
    called = (seen.operator, seen.source, f"{seen.operator}@{seen.source}")
    return any(fnmatchcase(name, pattern) for name in called)


def _order(one: Offender) -> tuple[bool, int, bool, str]:
    return bool(one.accepted), list(Kind).index(one.kind), not one.differed, one.seen.source


def _sentence(offenders: Sequence[Offender], new: Sequence[Offender], places: int) -> str:
    seen = f"of {counted(places, 'operator')} at their places"
    if not offenders:
        return f"none {seen} is without a deterministic form, and none was seen to differ on the same inputs"
    known = len(offenders) - len(new)
    told = [f"{len(new)} {seen} may differ from launch to launch"] if new else []
    told += [f"{known} {'more ' if new else f'{seen} '}accepted"] if known else []
    return ", ".join(told)
