"""What a verdict says, put into the words of a page; every number comes from ``verdict.json``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ddp_repro.judge.chance import in_words
from ddp_repro.judge.findings import Chance
from ddp_repro.judge.wording import counted, numbered

_SHOWN: Final = {
    "witness", "severity", "cause", "title", "launches", "step", "ranks", "phase", "name", "names", "operator",
    "source", "distance", "message", "advice", "reproduce",
}  # fmt: skip
_TOP: Final = {
    "schema", "verdict", "exit_code", "command", "level", "folder", "launches", "observations", "classes", "identity",
    "problems", "findings", "notes", "variants", "ignore", "stretches", "golden", "chance", "ended_early",
}  # fmt: skip
_LONGEST: Final = 2000
_SENTENCE: Final = 400
_BARS_FROM: Final = 2  # one element needs no picture

Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingTold:
    """One finding as a page shows it: ``place`` in words, ``more`` the keys that have no place of their own.

    ``bars`` are the elements that differ, by how far they are apart: the distance in words, how many, and their share
    of the longest bar in percent.
    """

    found: Found
    place: str
    distance: str
    bars: list[tuple[str, int, int]]
    more: list[tuple[str, str]]


def sentence(verdict: Mapping[str, Any]) -> str:
    """Return the verdict in a sentence."""
    launches = counted(len(verdict["launches"]), "launch")
    rows = counted(int(verdict["observations"]), "observation")
    if verdict["verdict"] == "REPRODUCIBLE":
        alike = "equal in bits" + (" to the golden" if verdict.get("golden") else "")
        return f"Every observation of {launches} was there and {alike}, and no invariant was broken ({rows})."
    if verdict["verdict"] == "NOT_JUDGED":
        why = cut(next(iter(verdict["problems"]), "see below"), _SENTENCE)
        return f"Nothing could be concluded: {why}."
    found = next((one for one in verdict["findings"] if one["severity"] == "error"), None)
    if found is None:
        return f"A difference was found ({launches}, {rows})."
    return f"{_what(found)}: {place(found)} – {cut(found['title'] or found['cause'], _SENTENCE)} ({launches}, {rows})."  # noqa: RUF001


def chance(verdict: Mapping[str, Any]) -> str:
    """Return what equal launches leave open, empty where nothing is said of that."""
    held = verdict.get("chance")
    return "" if held is None else in_words(Chance(**{name: held[name] for name in ("launches", "rate", "missed")}))


def _what(found: Found) -> str:
    return {
        "launches": "The same training gave other bits. First",
        "twins": "Variants that must not differ do. First",
        "ranks": "Ranks disagree where they must agree. First",
        "golden": "The training is not what its golden holds. First",
    }.get(found["witness"], "What must hold within a launch does not")


def place(found: Found) -> str:
    """Return where a finding is: launches, step, ranks, phase and name."""
    parts = [numbered("launch", found["launches"])] if found["launches"] else []
    if found["step"] is not None:
        parts.append("before step 0" if found["step"] < 0 else f"step {found['step']}")
    if found["ranks"]:
        parts.append(numbered("rank", found["ranks"]))
    parts += [cut(str(found[key]), _SENTENCE) for key in ("phase", "name") if found[key]]
    if found["operator"]:
        parts.append(f"operator {found['operator']}" + (f" at {found['source']}" if found["source"] else ""))
    return ", ".join(parts)


def told(found: Found) -> FindingTold:
    """Return a finding as it is shown."""
    more = [("names", ", ".join(found["names"]))] if len(found["names"]) > 1 else []
    more += [(key, in_json(value)) for key, value in found.items() if key not in _SHOWN and value not in (None, [], {})]
    return FindingTold(
        found=found,
        place=place(found),
        distance=_distance(found["distance"]) if found["distance"] else "",
        bars=_bars(found["distance"] or {}),
        more=[(key, cut(text, _LONGEST)) for key, text in more],
    )


def _distance(apart: Found) -> str:
    """Return how far two values are apart; each part that the verdict has."""
    parts = [] if apart["max_ulp"] is None else [f"{apart['max_ulp']:,} ULP at most"]
    if apart["elements"] > 1 and apart["median_ulp"] is not None:
        parts.append(f"{apart['median_ulp']:,} in the median")
    parts.append(f"{apart['elements']:,} of {counted(apart['of'], 'element')}")
    if apart["max_abs"] is not None:
        parts.append(f"{apart['max_abs']:.3g} at most")
    if apart["max_rel"] is not None:
        parts.append(f"{apart['max_rel']:.3g} relative")
    return ", ".join(parts) + (f"; {counted(apart['nans'], 'pair')} with a NaN" if apart["nans"] else "")


def _bars(apart: Found) -> list[tuple[str, int, int]]:
    """Return the bars of a distance of several elements, without the empty ones at the beginning."""
    counts = apart.get("by_ulp") or []
    if sum(counts) < _BARS_FROM:
        return []
    first = next(at for at, count in enumerate(counts) if count)
    return [(_ulps(at), count, round(100 * count / max(counts))) for at, count in enumerate(counts) if at >= first]


def _ulps(bits: int) -> str:
    return f"{bits} ULP" if bits < 2 else f"{2 ** (bits - 1):,} to {2**bits - 1:,} ULP"


def other_keys(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a verdict holds that has no place of its own on the page."""
    return [
        (key, cut(in_json(value), _LONGEST))
        for key, value in verdict.items()
        if key not in _TOP and value not in (None, [], {}, "")
    ]


def in_json(value: Any) -> str:
    """Return a value as JSON writes it; a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cut(text: str, at_most: int) -> str:
    """Return ``text``, or its beginning and how much of it is left out."""
    return text if len(text) <= at_most else f"{text[:at_most]} … ({len(text) - at_most:,} more signs in verdict.json)"


def classes_told(classes: Sequence[Sequence[int]]) -> dict[int, str]:
    """Return by launch the letter of its class of equal bits: A, B, …; beyond Z, numbers."""
    letters = [chr(ord("A") + at) if at < 26 else str(at + 1) for at in range(len(classes))]
    return {launch: letter for letter, one in zip(letters, classes, strict=True) for launch in one}
