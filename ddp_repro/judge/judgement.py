"""The verdict on recorded launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from ddp_repro.errors import Verdict
from ddp_repro.judge.causes import preceded
from ddp_repro.judge.chance import undetected
from ddp_repro.judge.cut import as_recorded, certain_of_cut, cut_notes, ended_early, undecided, undecided_told
from ddp_repro.judge.divergence import classes, reordered_rows
from ddp_repro.judge.finals import went_on_inexactly
from ddp_repro.judge.findings import FieldDifference, Finding, Judgement, Variant, merged
from ddp_repro.judge.identity import compare_identities, in_words, refusal_findings, unused_allowances
from ddp_repro.judge.ignored import without_ignored
from ddp_repro.judge.invariants import as_allowed, launch_findings
from ddp_repro.judge.nodes import nodes_of
from ddp_repro.judge.repeated import holds_the_same
from ddp_repro.judge.soundness import blind_spots, common_problems, problems_of, usable_before
from ddp_repro.judge.twins import Comparing
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.launch import Launch

WORKERS_NOT_COMPARED: Final = (
    "the number of loader workers may differ: the batches were compared, the workers' own generators were not"
)
_NUMBER_OF_WORKERS: Final = "experiment.config.data.num_workers"
ONE_LAUNCH: Final = (
    "one launch: there is nothing to compare it with (its invariants hold); make two or more with check launches=2, or "
    "compare it with another run"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By what launches are judged.

    ``allow`` names identity fields that may differ (dotted; a prefix allows all below it), ``level`` the level of
    reproducibility that they are held to, ``reproduce`` the command that makes them again, ``expected`` how many
    launches there should be. ``ignore`` are globs on the names of observations that no witness looks at (``phase:glob``
    for those of one phase), ``variants`` the twins that the launches were made of, where there are any.
    """

    allow: tuple[str, ...] = field(default=())
    level: str = "same-stack"
    reproduce: str = ""
    expected: int | None = None
    ignore: tuple[str, ...] = field(default=())
    variants: tuple[Variant, ...] = field(default=())


def judge(launches: Sequence[Launch], rules: Rules) -> Judgement:
    """Return the verdict on ``launches``.

    Launches are called by their numbers; where those are not distinct (runs that are compared all begin at 0), they
    are counted anew in the order given. Never raises on what was recorded.
    """
    recorded = _numbered(launches)
    launches, ignored = without_ignored(recorded, rules.ignore)
    differences = compare_identities(launches, rules.allow, rules.level, rules.variants)
    comparing = Comparing(variants=rules.variants, other_workers=_other_workers(differences))
    comparable = all(difference.allowed for difference in differences)
    unsound = problems_of(launches, is_ignoring=bool(rules.ignore))
    if comparable and not any(unsound.values()):
        unsound |= {number: [told] for number, told in undecided(launches, comparing.differ).items()}
    problems = [problem for launch in launches for problem in unsound[launch.index]]
    problems += common_problems(launches, differences, may_capture_differ=bool(rules.variants))
    if not problems and rules.expected is not None and len(launches) < rules.expected:
        problems.append(f"only {len(launches)} of {rules.expected} launches were made")
    within, notes = _within(launches, unsound, rules.allow)
    refusal = refusal_findings(launches, differences)
    between = _between(launches, comparing, usable_before(launches, unsound)) if comparable else _Between()
    findings = [*merged(between.findings), *merged(within), *refusal]
    verdict, problems = _verdict(launches, findings, problems)
    return Judgement(
        verdict=verdict,
        classes=between.alike,
        findings=ordered(findings, rules.reproduce),
        problems=problems,
        notes=[
            *cut_notes(recorded, between.alike),
            *ignored,
            *blind_spots(launches),
            *went_on_inexactly(launches),
            *notes,
            *between.notes,
            *_allowances(launches, rules, differences),
        ],
        identity=identity_of(launches),
        identity_differences=differences,
        observations=sum(len(trace) for launch in recorded for trace in launch.traces.values()),
        folders={launch.index: str(launch.path) for launch in launches},
        variants=rules.variants,
        nodes=nodes_of(launches),
        ended=ended_early(recorded),
        chance=undetected(len(launches)) if verdict is Verdict.REPRODUCIBLE else None,
    )


def ordered(findings: Sequence[Finding], reproduce: str) -> list[Finding]:
    """Return the findings with the command that makes the launches again, errors first.

    What the ranks were set up with comes before all that it leads to.
    """
    told = (replace(found, reproduce=reproduce) for found in findings)
    return sorted(told, key=lambda found: (found.severity != "error", not _is_of_setup(found)))


def _is_of_setup(found: Finding) -> bool:
    return found.witness == "invariants" and found.step is None


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
    cut = [undecided_told(launch) for launch in launches if launch.was_cut]
    if cut:  # whatever its difference was, it led to no finding
        return Verdict.NOT_JUDGED, cut
    return Verdict.REPRODUCIBLE, []


def identity_of(launches: Sequence[Launch]) -> str:
    """Return the digest of rank 0's identity in the first launch that has one; empty where none has."""
    ranks = (launch.identities.get(0, {}) for launch in launches)
    return next((str(identity["digest"]) for identity in ranks if "digest" in identity), "")


def _numbered(launches: Sequence[Launch]) -> list[Launch]:
    if len({launch.index for launch in launches}) == len(launches):
        return list(launches)
    return [replace(launch, index=number) for number, launch in enumerate(launches)]


def _within(
    launches: Sequence[Launch], unsound: Mapping[int, Sequence[str]], allow: Sequence[str]
) -> tuple[list[Finding], list[str]]:
    findings: list[Finding] = []
    notes: dict[str, list[int]] = {}
    judged: list[tuple[Launch, list[Finding], list[str]]] = []
    for launch in launches:
        before = usable_before([launch], unsound)
        is_whole = before is None and not launch.was_cut
        same = (one for one in judged if is_whole and holds_the_same(one[0], launch))
        _, found, told = next(same, None) or (launch, *launch_findings(as_recorded(launch), before=before))
        judged += [(launch, found, told)] if is_whole else []
        found = [as_allowed(replace(one, launches=(launch.index,)), allow) for one in found]
        findings += certain_of_cut(found, findings) if launch.was_cut else found
        for note in told:
            notes.setdefault(note, []).append(launch.index)
    every = {launch.index for launch in launches if not launch.was_cut}
    return findings, [note if every <= set(on) else f"{note} ({numbered('launch', on)})" for note, on in notes.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Between:
    """What comparing launches gave: classes of equal bits, findings, notes."""

    alike: list[list[int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _other_workers(differences: Sequence[FieldDifference]) -> bool:
    return any(one.allowed and one.field == _NUMBER_OF_WORKERS for one in differences)


def _between(launches: Sequence[Launch], comparing: Comparing, before: int | None) -> _Between:
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
    return _Between(alike=alike, findings=findings, notes=notes)


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


def _allowances(launches: Sequence[Launch], rules: Rules, differences: Sequence[FieldDifference]) -> list[str]:
    notes = allowed_notes(launches, differences)
    unused = unused_allowances(launches, rules.allow)
    return notes + [f"compare.allow names {pattern}, which no identity has" for pattern in unused]


def allowed_notes(launches: Sequence[Launch], differences: Sequence[FieldDifference]) -> list[str]:
    """Return a note on each identity field that differs and may."""
    numbers = [launch.index for launch in launches]
    return [f"allowed to differ: {in_words(one, numbers)}" for one in differences if one.allowed]
