"""Before which steps a rank records all that the step starts from."""

from ddp_repro.config import BoundaryCapture, CaptureConfig
from ddp_repro.observe.boundary import Wanted, no_boundary


def boundaries(capture: CaptureConfig) -> Wanted:
    """Return whether the boundary before a step (optimizer steps done before it) is to be recorded."""
    if capture.boundary is BoundaryCapture.none:
        return no_boundary
    if capture.boundary is BoundaryCapture.first:
        return _FirstStep()
    wanted = frozenset(capture.boundary_at)
    return lambda step: not wanted or step in wanted


class _FirstStep:
    def __init__(self) -> None:
        self._step: int | None = None

    def __call__(self, step: int) -> bool:
        if self._step is None:
            self._step = step
        return step == self._step
