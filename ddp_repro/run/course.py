"""How far a training is: what it saves of that, and how it goes on from there."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.generators import process_states, restore_process_states
from ddp_repro.run.checkpoint.progress import Progress, Restored
from ddp_repro.run.reseeding import WorkerSeeded
from ddp_repro.run.sampler import EpochSampler


class Course:
    """Steps, epoch and batches that are done, and what a pass over the loader began with.

    ``step`` counts optimizer steps, ``position`` the batches of ``epoch`` that were trained on. ``history`` holds each
    epoch's validation result.
    """

    def __init__(self) -> None:
        self.step = 0
        self.epoch = 0
        self.position = 0
        self.history: list[dict[str, float]] = []
        self.not_exact: tuple[str, ...] = ()
        """Fields in which the run that saved was another one."""
        self._pass_began: dict[str, Any] = {}
        self._restored: Restored | None = None

    @property
    def progress(self) -> Progress:
        """How far it is, as a checkpoint has it."""
        return Progress(step=self.step, epoch=self.epoch, position=self.position)

    @property
    def kept(self) -> dict[str, Any]:
        """What else a checkpoint holds: the results so far, and the generators' states that the pass began with."""
        return {"history": self.history, "pass_began": self._pass_began}

    def go_on(self, restored: Restored) -> None:
        """Take over what a checkpoint holds; the generators are put back once the pass under way was begun again."""
        progress = restored.progress
        self.step, self.epoch, self.position = progress.step, progress.epoch, progress.position
        self.history = restored.values["history"]
        self.not_exact = restored.not_exact
        self._pass_began = restored.values["pass_began"]
        self._restored = restored

    def begin_epoch(self, epoch: int) -> None:
        """Take note that an epoch begins: nothing of it is done."""
        self.epoch, self.position = epoch, 0

    def batches(self, loader: "DataLoader[Any]") -> Iterator[Any]:
        """Return the batches of the epoch that are left, in their order."""
        if self._restored is None:
            self._pass_began = _generators(loader)
            return iter(loader)
        restored, self._restored = self._restored, None
        _restore(loader, self._pass_began)
        batches = _after(loader, self.position)
        restored.restore_rng()
        return batches

    def advance(self, batches: Iterable[Any], *, stepped: bool) -> None:
        """Count the batches of one step; a step that the scaler left out is none of the optimizer's."""
        self.position += sum(1 for _ in batches)
        self.step += stepped


def _generators(loader: "DataLoader[Any]") -> dict[str, Any]:
    own = {} if loader.generator is None else {"loader": loader.generator.get_state()}
    return {"process": process_states(), **own}


def _restore(loader: "DataLoader[Any]", states: dict[str, Any]) -> None:
    """Put the generators that beginning a pass draws from into the states that it began with."""
    restore_process_states(states["process"])
    if loader.generator is not None:
        loader.generator.set_state(states["loader"])


def _after(loader: "DataLoader[Any]", position: int) -> Iterator[Any]:
    """Begin the pass again and return its batches after the first ``position``.

    They are not fetched where nothing depends on it. Workers with one stream for all their samples draw again what
    they drew. Raises ``ReproError`` where workers keep streams from pass to pass that cannot be drawn again.
    """
    if isinstance(loader.sampler, EpochSampler) and loader.batch_size and not _draws_in_workers(loader):
        loader.sampler.leave_out(position * loader.batch_size)
        return iter(loader)
    if loader.persistent_workers and not isinstance(loader.dataset, WorkerSeeded):
        raise ReproError(
            "a loader of its own with persistent workers cannot go on in bits: its workers keep random streams from "
            "epoch to epoch, which no checkpoint holds.",
            hint="Make it with ddp_repro.make_loader, or set data.persistent_workers=false.",
        )
    batches = iter(loader)
    for _ in islice(batches, position):
        pass
    return batches


def _draws_in_workers(loader: "DataLoader[Any]") -> bool:
    return isinstance(loader.dataset, WorkerSeeded) and loader.num_workers > 0
