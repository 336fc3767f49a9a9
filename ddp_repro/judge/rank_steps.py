"""Whether the ranks of a launch make the same optimizer steps."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.majority import outside_majority
from ddp_repro.judge.rank_causes import STEP_PLACE, Disagreement, last_digests, rows_of
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_OF_A_STEP: Final = ("param", "optimizer", "grad_step")
_LEFT: Final = ("finished", "max_steps")


def other_steps(launch: Launch, found: Disagreement | None, *, is_whole: bool) -> Finding | None:
    """Return a finding where that the ranks' steps part explains what they first disagree in, or comes before it.

    ``is_whole`` says that all traces are whole; where not, a rank that ended by itself is told from those that went on.
    """
    if found is not None:
        losses = {rank: len(rows_of(trace, found.step, "loss")) for rank, trace in sorted(launch.traces.items())}
        if found.absent and len(set(losses.values())) > 1:
            return _parted(launch, found.step, losses, _in_losses(losses))
    made = {rank: _steps(trace, _OF_A_STEP) for rank, trace in sorted(launch.traces.items())}
    if not is_whole:
        return _left_early(launch, found, made)
    if len(set(made.values())) < 2:
        return None
    first = min(made.values())
    if found is not None and found.step < first:
        return _parted(launch, found.step, made, _in_steps(made)) if _is_shifted(launch, found) else None
    if found is not None and found.step == first and not found.absent and not _is_shifted(launch, found):
        return None
    return _parted(launch, first, made, _in_steps(made))


def _steps(trace: Trace, phases: tuple[str, ...]) -> int:
    """Return how many optimizer steps a rank came to by what it observed of ``phases``."""
    codes = [code for code, phase in enumerate(trace.phases) if phase in phases]
    return int(trace.step[np.isin(trace.phase, codes)].max(initial=-1)) + 1


def _left_early(launch: Launch, found: Disagreement | None, made: Mapping[int, int]) -> Finding | None:
    """Tell ranks that ended by themselves while others had begun another step, in which they then failed."""
    left = {rank: made[rank] for rank, trace in sorted(launch.traces.items()) if trace.whole and trace.end in _LEFT}
    went_on = [rank for rank, trace in launch.traces.items() if rank not in left and _steps(trace, ("loss",)) > 0]
    early = [rank for rank in left if any(_steps(launch.traces[one], ("loss",)) > left[rank] for one in went_on)]
    if not early or (found is not None and found.step < left[early[0]]):
        return None
    step = min(left[rank] for rank in early)
    what = (
        f"{numbered('rank', early)} ended after {counted(step, 'optimizer step')}, {numbered('rank', went_on)} went on"
    )
    return _finding(launch, step, tuple(early), what)


def _is_shifted(launch: Launch, found: Disagreement) -> bool:
    """Return whether the odd ranks hold in a later step what the others hold in this one, or the other way round.

    All ranks get the same from a reduction, whatever number each gives the step that it is in.
    """
    others = [rank for rank in sorted(launch.traces) if rank not in found.odd]
    if not others:
        return False
    held = {rank: _reduced(launch.traces[rank], found.step) for rank in (found.odd[0], others[0])}
    later = {rank: _reduced(launch.traces[rank], found.step + 1) for rank in held}
    odd, other = found.odd[0], others[0]
    return bool(held[other] and later[odd] == held[other]) or bool(held[odd] and later[other] == held[odd])


def _reduced(trace: Trace, step: int) -> dict[str, bytes]:
    held = last_digests(trace, step, "grad_reduced")
    return {name: digest for name, digest in held.items() if not name.endswith("bucket_layout")}


def _in_losses(losses: Mapping[int, int]) -> str:
    told = (f"{numbered('rank', ranks)} took {counted(count, 'loss')}" for count, ranks in _by_value(losses))
    return f"{listed(told)} in it, so an optimizer step was skipped, or made once more, on some ranks only"


def _in_steps(made: Mapping[int, int]) -> str:
    told = (f"{numbered('rank', ranks)} made {counted(count, 'optimizer step')}" for count, ranks in _by_value(made))
    return f"{listed(told)} in all"


def _by_value(values: Mapping[int, int]) -> list[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for rank, value in values.items():
        found.setdefault(value, []).append(rank)
    return sorted(found.items())


def _parted(launch: Launch, step: int, values: Mapping[int, int], told: str) -> Finding:
    odd, has_majority = outside_majority(values)
    doubt = "" if has_majority else " (no majority tells which is wrong)"
    return _finding(launch, step, odd, f"step {step} is not the same on all ranks: {told}{doubt}")


def _finding(launch: Launch, step: int, ranks: tuple[int, ...], what: str) -> Finding:
    phase, name = STEP_PLACE
    place = Place(
        witness="ranks", launches=(launch.index,), step=step, ranks=ranks, phase=phase, name=name, names=(name,)
    )
    return finding("control-flow", place, {"what": what})
