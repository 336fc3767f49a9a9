"""Launches that were ended soon after they had differed from another one, judged by what they wrote until then.

What such a launch shows is a difference or nothing: that it equals another one is never known of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ddp_repro.judge.divergence import Compare
from ddp_repro.judge.findings import Ended, Finding
from ddp_repro.judge.ignored import rows_kept
from ddp_repro.judge.wording import numbered
from ddp_repro.trace.launch import Launch

_NO_DIFFERENCE: Final = "and shows no difference from another launch as it is judged now: record it again, whole"


def reach(launch: Launch) -> int:
    """Return the step below which every rank's rows are there, however the launch ended."""
    return min((int(trace.step.max(initial=-1)) for trace in launch.traces.values()), default=-1)


def common_reach(a: Launch, b: Launch) -> int | None:
    """Return the step below which two launches can be compared; ``None`` where neither was ended early."""
    return min((reach(one) for one in (a, b) if one.was_cut), default=None)


def up_to(launch: Launch, step: int) -> Launch:
    """Return a launch as it was before ``step``; what it ended with is not known then."""
    traces = {rank: rows_kept(trace, np.less(trace.step, step)) for rank, trace in launch.traces.items()}
    return replace(launch, traces=traces, finals={})


def as_recorded(launch: Launch) -> Launch:
    """Return a launch with the whole steps of one that was ended early."""
    return up_to(launch, reach(launch)) if launch.was_cut else launch


def undecided(launches: Sequence[Launch], compare: Compare) -> dict[int, str]:
    """Return, by its number, why a launch that was ended early says nothing: no other one differs from it."""
    return {
        launch.index: undecided_told(launch)
        for launch in launches
        if launch.was_cut and all(compare(one, launch) is None for one in launches if one is not launch)
    }


def undecided_told(launch: Launch) -> str:
    """Return that a launch was ended early, and shows no difference."""
    return f"launch {launch.index} was ended early{_because(launch)}, {_NO_DIFFERENCE}"


def ended_early(launches: Sequence[Launch]) -> tuple[Ended, ...]:
    """Return what ended each of the launches that were ended early."""
    return tuple(
        Ended(
            launch=launch.index,
            at=reach(launch),
            step=launch.record.parting.step,
            ranks=launch.record.parting.ranks,
            phase=launch.record.parting.phase,
            name=launch.record.parting.name,
        )
        for launch in launches
        if launch.was_cut and launch.record is not None and launch.record.parting is not None
    )


def cut_notes(launches: Sequence[Launch], alike: Sequence[Sequence[int]]) -> list[str]:
    """Return what was ended early and why, and which classes hold launches that were compared only so far."""
    ended: dict[str, list[int]] = {}
    for launch in launches:
        if launch.was_cut:
            ended.setdefault(_when(launch), []).append(launch.index)
    notes = [f"{numbered('launch', numbers)} {_agreed(when, len(numbers))}" for when, numbers in ended.items()]
    cut = {launch.index: reach(launch) for launch in launches if launch.was_cut}
    for one in alike:
        short = [number for number in one if number in cut]
        if len(one) > 1 and short:
            last = min(cut[number] for number in short) - 1
            notes.append(
                f"{numbered('launch', one)} are equal in bits up to step {last}; what came later is not known of "
                f"{numbered('launch', short)}"
            )
    return notes


def certain_of_cut(found: Sequence[Finding], others: Sequence[Finding]) -> list[Finding]:
    """Return what was ``found`` within a launch that was ended early, less what its later part might have cleared up.

    What ``others`` tell of a whole launch is told as there, which has more to say. Besides, only that ranks disagree,
    or were set up differently, is certain: a pass over the data that was broken off may look like a fault and be none.
    """
    known = {_place_of(one): one for one in reversed(others)}
    told = [replace(known.get(_place_of(one), one), launches=one.launches) for one in found]
    return [one for one in told if _place_of(one) in known or one.witness == "ranks" or one.step is None]


def _agreed(text: str, count: int) -> str:
    return text if count == 1 else text.replace("was ended", "were ended").replace("after its", "after their")


def _when(launch: Launch) -> str:
    return f"was ended at step {reach(launch)}{_because(launch)}: fail_fast"


def _because(launch: Launch) -> str:
    parting = None if launch.record is None else launch.record.parting
    if parting is None:
        return ""
    where = "before step 0" if parting.step < 0 else f"at step {parting.step}"
    return f", soon after its first difference {where}"


def _place_of(found: Finding) -> tuple[object, ...]:
    return found.witness, found.severity, found.cause, found.step, found.ranks, found.phase, found.name
