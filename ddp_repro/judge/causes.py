"""Makes every finding: from a cause, where it was seen, and the one table of what is said of causes and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ddp_repro.judge.cause import Cause
from ddp_repro.judge.causes_between import BETWEEN_LAUNCHES
from ddp_repro.judge.causes_resume import RESUMED
from ddp_repro.judge.causes_within import WITHIN_A_LAUNCH
from ddp_repro.judge.findings import Finding, Severity, Witness

CAUSES: Final[dict[str, Cause]] = {**BETWEEN_LAUNCHES, **WITHIN_A_LAUNCH, **RESUMED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Who saw what, where: the part of a finding that does not depend on its cause."""

    witness: Witness
    launches: tuple[int, ...]
    severity: Severity = "error"
    step: int | None = None
    ranks: tuple[int, ...] = ()
    phase: str = ""
    name: str = ""
    names: tuple[str, ...] = ()


def finding(
    cause: str, place: Place, gaps: Mapping[str, str], *, detail: str = "", causes: Mapping[str, Cause] = CAUSES
) -> Finding:
    """Return the finding of ``cause`` at ``place``: the gaps of its sentences filled, ``detail`` added."""
    entry = causes[cause]
    message = entry.message.format_map(gaps)
    return Finding(
        witness=place.witness,
        severity=place.severity,
        cause=cause,
        title=entry.title.format_map(gaps),
        launches=place.launches,
        step=place.step,
        ranks=place.ranks,
        phase=place.phase,
        name=place.name,
        names=place.names,
        message=f"{message}; {detail}" if detail else message,
        advice=entry.advice.format_map(gaps),
    )


def preceded(found: Finding, words: str) -> Finding:
    """Return the finding with ``words`` before its message."""
    return replace(found, message=words + found.message)
