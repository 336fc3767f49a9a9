"""The verdict on recorded launches."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ddp_repro.errors import Verdict
from ddp_repro.judge.causes import preceded
from ddp_repro.judge.diagnosis import diagnose
from ddp_repro.judge.divergence import classes, compare_launches, reordered_rows
from ddp_repro.judge.explained import without_explained
from ddp_repro.judge.findings import FieldDifference, Finding, Judgement, Variant, merged
from ddp_repro.judge.identity import compare_identities, in_words, unused_allowances
from ddp_repro.judge.invariants import launch_findings
from ddp_repro.judge.soundness import blind_spots, common_problems, launch_problems, usable_before
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.launch import Launch

ONE_LAUNCH = (
    "one launch: there is nothing to compare it with (its invariants hold); make two or more with check launches=2, or "
    "compare it with another run"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By what launches are judged.

    ``allow`` names identity fields that may differ (dotted; a prefix allows all below it), ``level`` the level of
    reproducibility that they are held to, ``reproduce`` the command that makes them again, ``expected`` how many
    launches there should be, ``variants`` which of them belong to which of a run's twins (none: all are alike).
    """

    allow: tuple[str, ...] = field(default=())
    level: str = "same-stack"
    reproduce: str = ""
    expected: int | None = None
    variants: tuple[Variant, ...] = ()


def judge(launches: Sequence[Launch], rules: Rules) -> Judgement:
    """Return the verdict on ``launches``.

    Launches are called by their numbers; where those are not distinct (runs that are compared all begin at 0), they
    are counted anew in the order given. Never raises on what was recorded.
    """
    launches = _numbered(launches)
    differences = compare_identities(launches, rules.allow, rules.level)
    problems = [problem for launch in launches for problem in launch_problems(launch)]
    problems += common_problems(launches, differences)
    if not problems and rules.expected is not None and len(launches) < rules.expected:
        problems.append(f"only {len(launches)} of {rules.expected} launches were made")
    within, notes = _within(launches)
    comparable = all(difference.allowed for difference in differences)
    compared, left_out = without_explained(launches, differences)
    alike, between = _between(compared) if comparable else ([], [])
    findings = [replace(found, reproduce=rules.reproduce) for found in [*merged(between), *merged(within)]]
    verdict, problems = _verdict(launches, findings, problems)
    return Judgement(
        verdict=verdict,
        classes=alike,
        findings=sorted(findings, key=lambda found: found.severity != "error"),
        problems=problems,
        notes=[
            *blind_spots(launches),
            *notes,
            *_reordered(compared, alike),
            *_allowances(launches, rules, differences),
            *left_out,
        ],
        identity=_identity(launches),
        identity_differences=differences,
        observations=sum(len(trace) for launch in launches for trace in launch.traces.values()),
        folders={launch.index: str(launch.path) for launch in launches},
    )


def _verdict(launches: Sequence[Launch], findings: Sequence[Finding], problems: list[str]) -> tuple[Verdict, list[str]]:
    """Return the verdict and the reasons for which nothing could be concluded."""
    if not launches:
        return Verdict.NOT_JUDGED, [*problems, "no launches were given"]
    if problems:
        return Verdict.NOT_JUDGED, problems
    if any(found.severity == "error" for found in findings):
        return Verdict.DIVERGED, []
    if len(launches) < 2:
        return Verdict.NOT_JUDGED, [ONE_LAUNCH]
    return Verdict.REPRODUCIBLE, []


def _identity(launches: Sequence[Launch]) -> str:
    """Return the digest of rank 0's identity in the first launch that has one; empty where none has."""
    ranks = (launch.identities.get(0, {}) for launch in launches)
    return next((str(identity["digest"]) for identity in ranks if "digest" in identity), "")


def _numbered(launches: Sequence[Launch]) -> list[Launch]:
    if len({launch.index for launch in launches}) == len(launches):
        return list(launches)
    return [replace(launch, index=number) for number, launch in enumerate(launches)]


def _within(launches: Sequence[Launch]) -> tuple[list[Finding], list[str]]:
    findings: list[Finding] = []
    notes: dict[str, list[int]] = {}
    for launch in launches:
        found, told = launch_findings(launch, before=usable_before([launch]))
        findings += found
        for note in told:
            notes.setdefault(note, []).append(launch.index)
    every = len(launches)
    return findings, [note if len(on) == every else f"{note} ({numbered('launch', on)})" for note, on in notes.items()]


def _between(launches: Sequence[Launch]) -> tuple[list[list[int]], list[Finding]]:
    """Return the classes of equal bits, and a finding for each class that differs from the largest one."""
    before = usable_before(launches)
    if before is not None:
        return [], _against(launches[0], launches[1:], before) if launches else []
    alike = classes(launches)
    if len(alike) < 2:
        return alike, []
    by_number = {launch.index: launch for launch in launches}
    largest = max(alike, key=len)
    findings = []
    for one in alike:
        if one is largest:
            continue
        pair = sorted([largest[0], one[0]])
        found = compare_launches(by_number[pair[0]], by_number[pair[1]])
        assert found is not None, "launches of two classes differ"
        told = diagnose(by_number[pair[0]], by_number[pair[1]], found)
        findings.append(preceded(told, _alone(one, largest, len(launches))))
    return alike, findings


def _against(first: Launch, others: Sequence[Launch], before: int) -> list[Finding]:
    """Compare what is whole in launches that cannot be judged with the first of them."""
    findings = []
    for other in others:
        found = compare_launches(first, other, before=before)
        if found is not None and found.first is not None:
            findings.append(diagnose(first, other, replace(found, missing=())))
    return findings


def _alone(one: Sequence[int], largest: Sequence[int], count: int) -> str:
    """Return how the launches fall apart, where there are enough of them to say."""
    if count < 3 or len(largest) < 2:
        return ""
    if len(one) == 1:
        return f"launch {one[0]} is alone ({numbered('launch', largest)} are equal in bits): "
    return f"{numbered('launch', one)} differ from {numbered('launch', largest)}: "


def _reordered(launches: Sequence[Launch], alike: Sequence[Sequence[int]]) -> list[str]:
    by_number = {launch.index: launch for launch in launches}
    notes = []
    for one in alike:
        for number in one[1:]:
            rows = reordered_rows(by_number[one[0]], by_number[number])
            if rows:
                notes.append(
                    f"launch {number} observed {counted(rows, 'row')} in another order than launch {one[0]}, all equal"
                )
    return notes


def _allowances(launches: Sequence[Launch], rules: Rules, differences: Sequence[FieldDifference]) -> list[str]:
    numbers = [launch.index for launch in launches]
    notes = [f"allowed to differ: {in_words(one, numbers)}" for one in differences if one.allowed]
    unused = unused_allowances(launches, rules.allow)
    return notes + [f"compare.allow names {pattern}, which no identity has" for pattern in unused]
