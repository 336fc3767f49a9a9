"""In which steps a rank observes more than usual: what a step starts from, its modules, its operators."""

from ddp_repro.config import BoundaryCapture, CaptureConfig, KeptPart
from ddp_repro.observe.boundary import Wanted, no_boundary
from ddp_repro.observe.survey import SurveyPlan
from ddp_repro.observe.window import MIB, Window
from ddp_repro.run.progress import ProgressPipe
from ddp_repro.trace.layout import LaunchFolder


def boundaries(capture: CaptureConfig) -> Wanted:
    """Return whether the boundary before a step (optimizer steps done before it) is to be recorded."""
    if capture.boundary is BoundaryCapture.none:
        return no_boundary
    if capture.boundary is BoundaryCapture.first:
        return _FirstStep()
    wanted = frozenset(capture.boundary_at)
    return lambda step: not wanted or step in wanted


def window(capture: CaptureConfig, folder: LaunchFolder, rank: int, pipe: ProgressPipe) -> Window:
    """Return in which steps modules and operators are observed, and the room for that; rank 0 tells what it takes."""
    first, last = capture.steps or (0, None)
    return Window(
        first=first,
        last=last,
        limit_bytes=capture.limit_mb * MIB,
        keep=None if capture.keep is KeptPart.none else capture.keep.value,
        keep_bytes=capture.keep_mb * MIB,
        keep_at=lambda step: folder.tensors(rank, step),
        on_size=(lambda size: pipe.send("size", step=size)) if rank == 0 else None,
        survey=SurveyPlan(file=folder.survey(rank), again=capture.survey) if capture.survey else None,
    )


class _FirstStep:
    def __init__(self) -> None:
        self._step: int | None = None

    def __call__(self, step: int) -> bool:
        if self._step is None:
            self._step = step
        return step == self._step
