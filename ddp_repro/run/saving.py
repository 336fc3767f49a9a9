"""When the built-in training saves a checkpoint, and how it goes on from one."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ddp_repro.errors import ReproError
from ddp_repro.observe.recorder import paused
from ddp_repro.run.checkpoint.loading import load_checkpoint
from ddp_repro.run.checkpoint.saving import save_checkpoint
from ddp_repro.run.course import Course
from ddp_repro.run.settle import settle_by
from ddp_repro.run.train import Session, loss_on


class Saving:
    """Saves what ``session`` holds where ``course`` has come to a step that is to be saved, and loads it."""

    def __init__(self, session: Session, course: Course, identity: Mapping[str, Any]) -> None:
        self._session = session
        self._course = course
        self._identity = identity
        self._config = session.config.checkpoint

    def after_step(self) -> None:
        """Save, if the step that was taken is one to be saved after."""
        config, step = self._config, self._course.step
        is_due = step in config.at or step == config.stop or (config.every and step % config.every == 0)
        if config.dir is None or not is_due:
            return
        session = self._session
        save_checkpoint(
            Path(config.dir),
            model=session.model,
            optimizer=session.optimizer,
            scheduler=session.scheduler,
            scaler=session.scaler,
            progress=self._course.progress,
            extra=self._course.kept,
            identity=self._identity,
            keep=config.keep,
        )

    def load(self) -> None:
        """Go on from the checkpoint that the configuration names, if it names one.

        Before it, DDP's buckets are laid out as they were in the training that goes on.
        """
        if self._config.load is None:
            return
        session = self._session
        self._settle()
        restored = load_checkpoint(
            Path(self._config.load),
            model=session.model,
            optimizer=session.optimizer,
            scheduler=session.scheduler,
            scaler=session.scaler,
            extra=dict.fromkeys(self._course.kept),
            identity=self._identity,
            allow=self._config.allow,
        )
        self._course.go_on(restored)

    def _settle(self) -> None:
        batch = self._example()
        settle_by(self._session.model, lambda: loss_on(self._session, batch))

    def _example(self) -> Any:
        """Return a batch of the training set; which samples it holds does not matter."""
        loader = self._session.loader
        if loader.batch_size is None or not hasattr(loader.dataset, "__getitem__"):
            with paused():
                return next(iter(loader))
        samples = [loader.dataset[index] for index in islice(range(len(loader.dataset)), loader.batch_size)]  # type: ignore[arg-type]
        if not samples:
            raise ReproError("the training set is empty")
        return loader.collate_fn(samples)
