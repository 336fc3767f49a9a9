"""What comparing launches with each other gives: classes of equal bits, what parts them, and notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from ddp_repro.judge.causes import preceded
from ddp_repro.judge.divergence import classes, reordered_rows
from ddp_repro.judge.findings import FieldDifference, Finding
from ddp_repro.judge.twins import Comparing
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.launch import Launch

WORKERS_NOT_COMPARED: Final = (
    "the number of loader workers may differ: the batches were compared, the workers' own generators were not"
)
_NUMBER_OF_WORKERS: Final = "experiment.config.data.num_workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What comparing launches gave: classes of equal bits, findings, notes."""

    alike: list[list[int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def other_workers(differences: Sequence[FieldDifference]) -> bool:
    """Return whether the number of loader workers differs, and may."""
    return any(one.allowed and one.field == _NUMBER_OF_WORKERS for one in differences)


def between(launches: Sequence[Launch], comparing: Comparing, before: int | None) -> Between:
    """Compare the launches of each variant with each other, and the variants; with ``before``, steps below it."""
    same = [[launch for launch in launches if launch.index in one.launches] for one in comparing.variants]
    groups = [group for group in same if group] or [list(launches)]
    alike = [] if before is not None else classes(launches, comparing.difference)
    findings: list[Finding] = []
    for group in groups:
        findings += _against(group, comparing, before) if before is not None else _apart(group, comparing)
    twins = [comparing.finding(a, b, before=before) for a, b in comparing.twins(launches)]
    findings += [found for found in twins if found is not None]
    notes = [*_reordered(launches, comparing, alike), *comparing.left_out(launches)]
    if comparing.other_workers and not comparing.variants:
        notes.append(WORKERS_NOT_COMPARED)
    return Between(alike=alike, findings=findings, notes=notes)


def _apart(launches: Sequence[Launch], comparing: Comparing) -> list[Finding]:
    """Return a finding for each class of equal bits that differs from the largest one."""
    alike = classes(launches, comparing.difference)
    if len(alike) < 2:
        return []
    by_number = {launch.index: launch for launch in launches}
    largest = max(alike, key=len)
    findings = []
    for one in alike:
        if one is largest:
            continue
        # The first two, but where one of them was ended before they parted.
        pairs = (sorted(pair) for pair in product(largest, one))
        told = (comparing.finding(by_number[a], by_number[b]) for a, b in pairs)
        found = next((finding for finding in told if finding is not None), None)
        assert found is not None, "launches of two classes differ"
        is_whole = not any(by_number[number].was_cut for number in largest)
        findings.append(preceded(found, _alone(one, largest, len(launches), is_whole=is_whole)))
    return findings


def _against(launches: Sequence[Launch], comparing: Comparing, before: int) -> list[Finding]:
    """Compare what is whole in launches that cannot be judged with the first of them."""
    found = (comparing.finding(launches[0], other, before=before) for other in launches[1:])
    return [one for one in found if one is not None]


def _alone(one: Sequence[int], largest: Sequence[int], count: int, *, is_whole: bool) -> str:
    """Return how the launches fall apart, where there are enough of them to say."""
    if count < 3 or len(largest) < 2:
        return ""
    if len(one) == 1:
        alike = "are equal in bits" if is_whole else "are equal as far as they went"
        return f"launch {one[0]} is alone ({numbered('launch', largest)} {alike}): "
    return f"{numbered('launch', one)} differ from {numbered('launch', largest)}: "


def _reordered(launches: Sequence[Launch], comparing: Comparing, alike: Sequence[Sequence[int]]) -> list[str]:
    by_number = {launch.index: launch for launch in launches}
    notes = []
    for one in alike:
        for number in one[1:]:
            a, b, _ = comparing.sides(by_number[one[0]], by_number[number])
            rows = reordered_rows(a, b)
            if rows:
                notes.append(
                    f"launch {number} observed {counted(rows, 'row')} in another order than launch {one[0]}, all equal"
                )
    return notes
