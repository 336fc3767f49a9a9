"""Two launches as the verdict on them compared them, from what the verdict says of how that was done."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddp_repro.judge.findings import Variant
from ddp_repro.judge.ignored import without_ignored
from ddp_repro.judge.resume_judgement import Stretch, compared, compared_before
from ddp_repro.judge.resumption import sides, without_boundaries
from ddp_repro.judge.twins import Comparing
from ddp_repro.trace.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How the launches of a run were compared: what was ignored, the twins, and the stretches of a stopped training."""

    ignore: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    other_workers: bool = False


def as_compared(a: Launch, b: Launch, how: How) -> tuple[Launch, Launch, int | None]:
    """Return both launches without what was left out, and the step before which they are compared (``None``: all)."""
    (a, b), _ = without_ignored([a, b], how.ignore)
    if how.stretches:
        return _as_stretch(a, b, next((one for one in how.stretches if one.launch == b.index), None))
    one, other, _ = Comparing(variants=how.variants, other_workers=how.other_workers).sides(a, b)
    return one, other, None


def _as_stretch(straight: Launch, launch: Launch, stretch: Stretch | None) -> tuple[Launch, Launch, int | None]:
    if stretch is not None and stretch.begins == 0:
        return without_boundaries(straight), without_boundaries(launch), _reached(launch, stretch)
    if stretch is None:
        both = sides(straight, launch, None)
        return both.straight, both.resumed, None
    both, _, _ = compared(straight, launch, stretch)
    return both.straight, both.resumed, compared_before(stretch, both.resumed)


def _reached(launch: Launch, stretch: Stretch) -> int:
    """Return the step before which all that a launch recorded until it was stopped is whole."""
    done = min((int(trace.step.max(initial=0)) for trace in launch.traces.values()), default=0)
    return done if stretch.is_killed else min(done + 1, stretch.stops or done + 1)


def stretches_told(stretches: Sequence[Stretch]) -> list[dict[str, int | bool | None]]:
    """Return the stretches as they stand in ``verdict.json``."""
    return [
        {
            "launch": one.launch,
            "begins": one.begins,
            "stops": one.stops,
            "killed": one.is_killed,
            "compared_to": one.compared_to,
        }
        for one in stretches
    ]
