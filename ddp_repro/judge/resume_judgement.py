"""The verdict on a training that was stopped and restarted, against the one that was never stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ddp_repro.errors import Verdict
from ddp_repro.judge.causes import preceded
from ddp_repro.judge.diagnosis import diagnose
from ddp_repro.judge.divergence import LaunchDivergence, compare_launches
from ddp_repro.judge.finals import common_ends, compare_finals
from ddp_repro.judge.findings import Finding, Judgement, merged
from ddp_repro.judge.identity import compare_identities, refusal_findings
from ddp_repro.judge.ignored import without_ignored
from ddp_repro.judge.invariants import launch_findings
from ddp_repro.judge.judgement import Rules, allowed_notes, identity_of, ordered
from ddp_repro.judge.nodes import nodes_of
from ddp_repro.judge.restored import begun_anew, idle_generators, restored_findings
from ddp_repro.judge.resumption import Lenient, Sides, sides, without_boundaries
from ddp_repro.judge.soundness import common_problems, problems_of
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.trace.launch import Launch

LAYOUT_ONLY: Final = (
    "DDP's buckets had another layout in the first step after a restart, and the gradients are equal in bits all the "
    "same"
)
SAID_OTHERWISE: Final = (
    "how the batches of the epoch under way were drawn, or the state of a generator that only seeds loaders, is "
    "another one, and what was trained on and trained is equal in bits all the same"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One launch of a stopped training: from which step it goes on, and at which it was stopped.

    ``begins`` is 0 for one from the very beginning, ``None`` where only the launch itself tells. ``compared_to`` is the
    step up to which it can be compared, ``None``: to the end. ``problem`` says why nothing can be concluded from it.
    """

    launch: int
    begins: int | None
    stops: int | None = None
    is_killed: bool = False
    compared_to: int | None = None
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What comparing gave so far."""

    findings: list[Finding] = field(default_factory=list)
    notes: dict[str, list[int]] = field(default_factory=dict)
    equal: list[int] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)


def judge_resumed(launches: Sequence[Launch], stretches: Sequence[Stretch], rules: Rules) -> Judgement:
    """Return the verdict on ``launches``: the first was never stopped, the others are ``stretches`` of stopped ones."""
    recorded = list(launches)
    launches, ignored = without_ignored(recorded, rules.ignore)
    differences = compare_identities(launches, rules.allow, rules.level, rules.variants)
    problems = _problems(launches, stretches, rules)
    problems += common_problems(launches, differences) if not problems else []
    seen = _Seen()
    if not problems:
        _compare(launches, stretches, seen)
    findings, notes = (
        launch_findings(without_boundaries(launches[0]), before=None) if launches and not problems else ([], [])
    )
    findings = [*merged(seen.findings), *merged(findings), *refusal_findings(launches, differences)]
    told = ordered(findings, rules.reproduce)
    return Judgement(
        verdict=_verdict(told, problems),
        classes=_classes(launches, seen) if not problems else [],
        findings=told,
        problems=problems,
        notes=[*ignored, *notes, *_told(seen), *_stops(stretches), *allowed_notes(launches, differences)],
        identity=identity_of(launches),
        identity_differences=differences,
        observations=sum(len(trace) for launch in recorded for trace in launch.traces.values()),
        folders={launch.index: str(launch.path) for launch in launches},
        variants=rules.variants,
        nodes=nodes_of(launches),
    )


def _verdict(findings: Sequence[Finding], problems: Sequence[str]) -> Verdict:
    if problems:
        return Verdict.NOT_JUDGED
    return Verdict.DIVERGED if any(one.severity == "error" for one in findings) else Verdict.REPRODUCIBLE


def _problems(launches: Sequence[Launch], stretches: Sequence[Stretch], rules: Rules) -> list[str]:
    """Return why nothing can be concluded: a launch that is not whole, unless it was to be killed."""
    killed = {one.launch for one in stretches if one.is_killed}
    unsound = problems_of([one for one in launches if one.index not in killed], is_ignoring=bool(rules.ignore))
    made = {launch.index for launch in launches}
    found = [one.problem for one in stretches if one.problem and one.launch in made and not unsound.get(one.launch)]
    found += [problem for problems in unsound.values() for problem in problems]
    if not found and len(launches) < 1 + len(stretches):
        found.append(f"only {len(launches)} of {1 + len(stretches)} launches were made")
    if not found and not stretches:
        found.append("no training was stopped: there is nothing to compare the uninterrupted one with")
    return found


def _compare(launches: Sequence[Launch], stretches: Sequence[Stretch], seen: _Seen) -> None:
    by_number = {launch.index: launch for launch in launches}
    for stretch in stretches:
        launch = by_number[stretch.launch]
        straight = _of_ranks_in(launch, launches[0]) if stretch.is_killed else launches[0]
        found = list(
            _from_the_start(straight, launch, stretch)
            if stretch.begins == 0
            else _gone_on(straight, launch, stretch, seen)
        )
        seen.findings += found
        (seen.apart if any(one.severity == "error" for one in found) else seen.equal).append(launch.index)


def _of_ranks_in(killed: Launch, straight: Launch) -> Launch:
    """Return the uninterrupted launch with the ranks that a killed one has: one may have written nothing by then."""
    return replace(straight, traces={rank: straight.traces[rank] for rank in straight.traces.keys() & killed.traces})


def _from_the_start(straight: Launch, launch: Launch, stretch: Stretch) -> Iterator[Finding]:
    """Yield where a launch differs before it was stopped: then the training does not repeat at all."""
    done = min((int(trace.step.max(initial=0)) for trace in launch.traces.values()), default=0)
    before = done if stretch.is_killed else min(done + 1, stretch.stops or done + 1)
    one, other = without_boundaries(straight), without_boundaries(launch)
    found = compare_launches(one, other, before=before)
    if found is not None:
        told = diagnose(one, other, found)
        yield preceded(told, "before anything was stopped, the launches differ already: ")


def _gone_on(straight: Launch, launch: Launch, stretch: Stretch, seen: _Seen) -> Iterator[Finding]:
    both, found, is_lenient = compared(straight, launch, stretch)
    if both.begins == 0:
        yield begun_anew(both, stretch.begins or 0)
        return
    if stretch.begins is not None and both.begins != stretch.begins:
        seen.notes.setdefault(f"goes on from step {both.begins}, not {stretch.begins}", []).append(launch.index)
    if is_lenient:
        seen.notes.setdefault(SAID_OTHERWISE, []).append(launch.index)
    yield from idle_generators(both)
    if both.one_sided:
        note = f"only one of both launches had {listed(both.one_sided)}, which is not compared"
        seen.notes.setdefault(note, []).append(launch.index)
    if found is None:
        if both.other_layout:
            seen.notes.setdefault(LAYOUT_ONLY, []).append(launch.index)
        return
    told = restored_findings(both, found) if found.first is not None and not found.at_end else []
    yield from told or [replace(diagnose(both.straight, both.resumed, found, witness="twins"), witness="twins")]


def compared(straight: Launch, launch: Launch, stretch: Stretch) -> tuple[Sides, LaunchDivergence | None, bool]:
    """Return both launches as they were compared, where they differ, and whether what moves no bit was let pass."""
    both = sides(straight, launch, stretch.begins)
    found = _difference(both, stretch)
    if found is not None and both.begins:
        lenient = sides(straight, launch, stretch.begins, Lenient(before=compared_before(stretch, both.resumed)))
        if _difference(lenient, stretch) is None:
            return lenient, None, True
    return both, found, False


def _difference(both: Sides, stretch: Stretch) -> LaunchDivergence | None:
    before = compared_before(stretch, both.resumed)
    found = compare_launches(both.straight, both.resumed, before=before)
    if found is not None or before is not None:
        return found
    one, other, _ = common_ends(both.straight, both.resumed, has_more_forwards=False)
    return compare_finals(one, other) if one.finals and other.finals else None


def compared_before(stretch: Stretch, resumed: Launch) -> int | None:
    """Return the step up to which a launch can be compared; what a killed one did not get to disk is no difference."""
    if stretch.is_killed:
        return min((int(trace.step.max(initial=0)) for trace in resumed.traces.values()), default=0)
    return stretch.stops if stretch.stops is not None else stretch.compared_to


def _classes(launches: Sequence[Launch], seen: _Seen) -> list[list[int]]:
    return [[launches[0].index, *seen.equal], *([number] for number in seen.apart)]


def _told(seen: _Seen) -> list[str]:
    return [f"{numbered('launch', numbers)}: {note}" for note, numbers in seen.notes.items()]


def _stops(stretches: Sequence[Stretch]) -> list[str]:
    stops = [one.stops for one in stretches if one.stops is not None]
    if not stops:
        return []
    how = "killed" if any(one.is_killed for one in stretches) else "stopped"
    told = ", ".join(str(stop) for stop in stops)
    return [f"{how} {counted(len(stops), 'time')}, after step {told}; launch 0 was never stopped"]
