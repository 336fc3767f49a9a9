"""The verdict on recorded launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ddp_repro.errors import Verdict
from ddp_repro.judge.between import Between, between, other_workers
from ddp_repro.judge.chance import undetected
from ddp_repro.judge.cut import as_recorded, certain_of_cut, cut_notes, ended_early, undecided, undecided_told
from ddp_repro.judge.finals import went_on_inexactly
from ddp_repro.judge.findings import FieldDifference, Finding, Judgement, Variant, merged
from ddp_repro.judge.identity import compare_identities, in_words, refusal_findings, unused_allowances
from ddp_repro.judge.ignored import without_ignored
from ddp_repro.judge.invariants import as_allowed, launch_findings
from ddp_repro.judge.nodes import nodes_of
from ddp_repro.judge.repeated import holds_the_same
from ddp_repro.judge.soundness import blind_spots, common_problems, problems_of, usable_before
from ddp_repro.judge.twins import Comparing
from ddp_repro.judge.wording import numbered
from ddp_repro.trace.launch import Launch

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
    """Return the verdict on launches, counted anew where numbers are not distinct; raises on nothing recorded."""
    recorded = _numbered(launches)
    launches, ignored = without_ignored(recorded, rules.ignore)
    differences = compare_identities(launches, rules.allow, rules.level, rules.variants)
    comparing = Comparing(variants=rules.variants, other_workers=other_workers(differences))
    comparable = all(difference.allowed for difference in differences)
    unsound = problems_of(launches, is_ignoring=bool(rules.ignore))
    if comparable and not any(unsound.values()):
        unsound |= {number: [told] for number, told in undecided(launches, comparing.difference).items()}
    problems = _problems(launches, unsound, differences, rules)
    within, notes = _within(launches, unsound, rules.allow)
    refusal = refusal_findings(launches, differences)
    compared = between(launches, comparing, usable_before(launches, unsound)) if comparable else Between()
    findings = [*merged(compared.findings), *merged(within), *refusal]
    verdict, problems = _verdict(launches, findings, problems)
    told = [
        *cut_notes(recorded, compared.alike),
        *ignored,
        *blind_spots(launches),
        *went_on_inexactly(launches),
        *notes,
        *compared.notes,
        *_allowances(launches, rules, differences),
    ]
    return Judgement(
        verdict=verdict,
        classes=compared.alike,
        findings=ordered(findings, rules.reproduce),
        problems=problems,
        notes=told,
        identity=identity_of(launches),
        identity_differences=differences,
        observations=sum(len(trace) for launch in recorded for trace in launch.traces.values()),
        folders={launch.index: str(launch.path) for launch in launches},
        variants=rules.variants,
        nodes=nodes_of(launches),
        ended=ended_early(recorded),
        chance=undetected(len(launches)) if verdict is Verdict.REPRODUCIBLE else None,
    )


def _problems(
    launches: Sequence[Launch],
    unsound: Mapping[int, Sequence[str]],
    differences: Sequence[FieldDifference],
    rules: Rules,
) -> list[str]:
    """Return why nothing can be concluded: what each launch lacks, then what they lack together."""
    problems = [problem for launch in launches for problem in unsound[launch.index]]
    problems += common_problems(launches, differences, may_capture_differ=bool(rules.variants))
    if not problems and rules.expected is not None and len(launches) < rules.expected:
        problems.append(f"only {len(launches)} of {rules.expected} launches were made")
    return problems


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
    """Return the launches, which are called by their numbers, counted anew in this order where those are not distinct.

    Runs that are compared all begin at 0.
    """
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


def _allowances(launches: Sequence[Launch], rules: Rules, differences: Sequence[FieldDifference]) -> list[str]:
    notes = allowed_notes(launches, differences)
    unused = unused_allowances(launches, rules.allow)
    return notes + [f"compare.allow names {pattern}, which no identity has" for pattern in unused]


def allowed_notes(launches: Sequence[Launch], differences: Sequence[FieldDifference]) -> list[str]:
    """Return a note on each identity field that differs and may."""
    numbers = [launch.index for launch in launches]
    return [f"allowed to differ: {in_words(one, numbers)}" for one in differences if one.allowed]
