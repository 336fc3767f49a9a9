"""Before which steps a rank records all that the step starts from."""

from ddp_repro.config import BoundaryCapture, CaptureConfig
from ddp_repro.observe.boundary import Wanted, no_boundary


def boundaries(capture: CaptureConfig) -> Wanted:
    """Return whether the boundary before a step (optimizer steps done before it) is to be recorded."""
    if capture.boundary is BoundaryCapture.none:
        return no_boundary
    if capture.boundary is BoundaryCapture.first:
        return _Once()
    wanted = frozenset(capture.boundary_at)
    return lambda step: not wanted or step in wanted


class _Once:
    def __init__(self) -> None:
        self._asked = False

    def __call__(self, _step: int) -> bool:
        asked, self._asked = self._asked, True
        return not asked
