"""What of a launch is kept as a golden, which golden fits a launch, and where the two first differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ddp_repro.judge.divergence import LaunchDivergence, compare_launches
from ddp_repro.judge.finals import compare_finals
from ddp_repro.judge.findings import FieldDifference, Finding
from ddp_repro.judge.golden_findings import golden_finding
from ddp_repro.judge.golden_rows import by_phase, final_by_kind
from ddp_repro.judge.identity import compare_identities, refused
from ddp_repro.judge.ignored import without_ignored
from ddp_repro.judge.twins import Comparing
from ddp_repro.trace.golden import Golden, compared_groups
from ddp_repro.trace.launch import Launch, LaunchRecord

FULL: Final = "full"
IGNORE: Final = "judge.ignore"
OBSERVER: Final = "ddp_repro"
_WORKERS: Final = "experiment.config.data.num_workers"
_CODE: Final = ("git_commit", "git_diff", "workload_source")
_HELD: Final[tuple[str, ...]] = ("param", "buffer", "metric")
_NUMBER: Final = -1  # no launch of a run has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How much of a launch is kept, what is ignored, and which version of the probes observes."""

    level: str
    ignore: Sequence[str]
    observer: str


def golden_of(launch: Launch, keeping: Keeping) -> Golden:
    """Return what is kept of a launch: nothing that another launch of the same thing would have otherwise."""
    is_full = keeping.level == FULL
    (kept,), _ = without_ignored([launch], () if is_full else keeping.ignore)
    ends = {rank: {kind: final[kind] for kind in _HELD if kind in final} for rank, final in kept.finals.items()}
    return Golden(
        level=keeping.level,
        capture=next(iter(launch.traces.values())).meta.capture,
        observer=keeping.observer,
        ignore=() if is_full else _sorted(keeping.ignore),
        code=code_of(launch),
        identities={rank: compared_groups(identity) for rank, identity in launch.identities.items()},
        finals=ends if is_full else {rank: final_by_kind(final) for rank, final in ends.items()},
        traces=kept.traces if is_full else {rank: by_phase(trace) for rank, trace in kept.traces.items()},
    )


def code_of(launch: Launch) -> dict[str, Any]:
    """Return where a launch's code came from: commit, digests of the uncommitted difference and of its source."""
    provenance = launch.identities.get(0, {}).get("provenance", {})
    return {name: provenance.get(name) for name in _CODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The golden that is nearest to a launch, and the fields (identity, ``judge.ignore``) by which it does not fit."""

    file: Path
    golden: Golden
    moved: tuple[FieldDifference, ...]

    @property
    def refused(self) -> tuple[FieldDifference, ...]:
        """Return the fields that may not differ, without what only follows from the world size."""
        return tuple(refused(self.moved))


def nearest(
    goldens: Mapping[Path, Golden], launch: Launch, keeping: Keeping, allow: Sequence[str], *, own: Path
) -> Fit | None:
    """Return the golden in which the fewest fields differ that may not, ``own`` first; ``None`` where there is none."""
    fits = [
        Fit(file=file, golden=golden, moved=_moved(golden, launch, keeping, allow))
        for file, golden in sorted(goldens.items())
    ]
    return min(fits, key=lambda fit: (len(fit.refused), len(fit.moved), fit.file != own), default=None)


def _moved(golden: Golden, launch: Launch, keeping: Keeping, allow: Sequence[str]) -> tuple[FieldDifference, ...]:
    moved = compare_identities([as_launch(golden), launch], allow, "same-stack")
    if golden.level == FULL:
        return tuple(moved)
    # Rows of workers are part of what one row stands for, so that their number cannot be allowed to differ.
    moved = [replace(one, allowed=one.allowed and one.field != _WORKERS) for one in moved]
    ignored = list(golden.ignore), list(_sorted(keeping.ignore))
    return (*moved, *([FieldDifference(field=IGNORE, values=list(ignored))] if ignored[0] != ignored[1] else ()))


def other_observer(golden: Golden, keeping: Keeping) -> FieldDifference | None:
    """Return the probes as a field that differs, where others watched: they may see other things of the same."""
    if golden.observer == keeping.observer:
        return None
    return FieldDifference(field=OBSERVER, values=[golden.observer, keeping.observer])


def as_launch(golden: Golden) -> Launch:
    """Return the golden as the launch that it was made of, as far as it was kept."""
    record = LaunchRecord(
        launch=_NUMBER, world_size=len(golden.identities), outcome="finished", reason="", ranks=[], seconds=0.0
    )
    return Launch(
        index=_NUMBER,
        path=Path("golden"),
        record=record,
        traces=golden.traces,
        identities=golden.identities,
        problems=[],
        finals=golden.finals,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a golden and a launch first differ, both as they were compared."""

    both: tuple[Launch, Launch]
    found: LaunchDivergence
    is_full: bool

    def finding(self, since: str) -> Finding:
        """Return the finding; ``since`` tells from which code to which they are."""
        return golden_finding(self.both, self.found, is_full=self.is_full, since=since)


def difference(golden: Golden, launch: Launch, keeping: Keeping, made: Golden) -> Difference | None:
    """Return where a golden that fits and a launch first differ, or ``None`` where all that was kept is equal.

    ``made`` is what is kept of the launch as ``keeping`` says; golden and launch are compared at the golden's level.
    """
    one, other = as_launch(golden), launch
    is_full = golden.level == FULL
    if is_full:
        (one, other), _ = without_ignored([one, other], keeping.ignore)
        one, other, _ = Comparing().sides(one, other)
    else:
        made = made if made.level == golden.level else golden_of(launch, replace(keeping, level=golden.level))
        other = replace(launch, traces=made.traces, finals=made.finals)
    found = compare_launches(one, other) or compare_finals(one, other)
    return None if found is None else Difference(both=(one, other), found=found, is_full=is_full)


def untold_end(golden: Golden, launch: Launch) -> bool:
    """Return whether only one of them says what its ranks ended with."""
    return golden.finals.keys() != launch.finals.keys()


def _sorted(ignore: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(ignore)))
