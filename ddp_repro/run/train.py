"""The built-in training loop: plain DDP training that knows nothing of being observed."""

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ddp_repro.config import DdpConfig, Precision, RecordConfig
from ddp_repro.errors import ReproError
from ddp_repro.run.course import Course
from ddp_repro.run.data import make_loader
from ddp_repro.run.forms import in_form, register_hook
from ddp_repro.run.training_checks import (
    checked_loader,
    checked_loss,
    checked_optimizer,
    checked_scheduler,
    measured,
)
from ddp_repro.run.world import Place
from ddp_repro.workload.definition import LoaderRequest, Workload

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All that one rank trains with."""

    config: RecordConfig
    place: Place
    workload: Workload
    model: DistributedDataParallel
    optimizer: Optimizer
    scheduler: LRScheduler | None
    scaler: GradScaler | None
    loader: "DataLoader[Any]"


def wrap(model: nn.Module, options: DdpConfig, device: torch.device) -> DistributedDataParallel:
    """Wrap the model in DDP, on its device; only options that differ from DDP's own defaults are passed on."""
    defaults = DdpConfig()
    chosen = {name: value for name, value in asdict(options).items() if value != getattr(defaults, name)}
    hook = chosen.pop("hook", None)
    device_ids = [device.index] if device.type == "cuda" else None
    wrapped = DistributedDataParallel(model.to(device), device_ids=device_ids, **chosen)
    if hook is not None:
        register_hook(wrapped, hook)
    return wrapped


def prepare(config: RecordConfig, place: Place, workload: Workload) -> Session:
    """Build model wrapper, loader, optimizer, scheduler and scaler."""
    loader = _train_loader(config, workload)
    if config.train.compile:
        workload.model.compile()  # in place: names stay as they are
    model = wrap(workload.model, config.ddp, place.device)
    optimizer = in_form(checked_optimizer(workload.optimizer(model.module)), config.train.optimizer)
    scheduler = None
    if workload.scheduler is not None:
        scheduler = checked_scheduler(workload.scheduler(optimizer, total_steps(config, len(loader))))
    return Session(
        config=config,
        place=place,
        workload=workload,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=GradScaler(place.device.type) if config.train.grad_scaler else None,
        loader=loader,
    )


def total_steps(config: RecordConfig, batches: int) -> int:
    """Return the number of optimizer steps of the whole run, given the batches of one epoch."""
    steps_an_epoch = -(-batches // config.train.accumulate)
    whole = config.train.epochs * steps_an_epoch
    return whole if config.train.max_steps is None else min(whole, config.train.max_steps)


def train(session: Session, course: Course, after_step: Callable[[], None]) -> None:
    """Train from where ``course`` is to the end, or to where it is stopped; call ``after_step`` after each step."""
    config, workload = session.config.train, session.workload
    whole = total_steps(session.config, len(session.loader))
    for epoch in range(course.epoch, config.epochs):
        _train_epoch(session, course, whole, after_step)
        if course.step == session.config.checkpoint.stop:
            return
        if config.evaluate and workload.eval_data is not None:
            course.history.append({"epoch": float(epoch), "metric": _evaluate(session)})
            log.info("epoch %d: metric %.6f", epoch, course.history[-1]["metric"])
        if _groups_done(session, course) == whole:
            return
        course.begin_epoch(epoch + 1)


def _train_epoch(session: Session, course: Course, whole: int, after_step: Callable[[], None]) -> None:
    session.model.train()  # type: ignore[no-untyped-call]
    set_epoch(session.loader, course.epoch)
    stop = session.config.checkpoint.stop
    groups = _grouped(course.batches(session.loader), session.config.train.accumulate)
    for group in islice(groups, whole - _groups_done(session, course)):
        stepped = take_step(session, group)
        course.advance(group, stepped=stepped)
        if stepped:
            after_step()
        if course.step == stop:
            return


def _groups_done(session: Session, course: Course) -> int:
    """Return how many groups of batches were trained on; the scaler may have left out the step of some."""
    size = session.config.train.accumulate
    return course.epoch * -(-len(session.loader) // size) + -(-course.position // size)


def set_epoch(loader: "DataLoader[Any]", epoch: int) -> None:
    """Tell the epoch to whatever in the loader wants to know it: sampler, batch sampler and the sampler within that."""
    batch_sampler: Any = loader.batch_sampler
    parts: list[Any] = [loader.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)]
    for part in parts:
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)


def _grouped(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield batches in groups of ``size``; the last group of an epoch may be smaller."""
    while group := list(islice(batches, size)):
        yield group


def take_step(session: Session, batches: list[Any]) -> bool:
    """Train on these micro-batches and tell whether the optimizer stepped; gradients are reduced with the last one."""
    for number, batch in enumerate(batches, start=1):
        last = number == len(batches)
        with nullcontext() if last else session.model.no_sync():
            loss = loss_on(session, batch) / len(batches)
            (loss if session.scaler is None else session.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
    stepped = _step(session)
    if session.scheduler is not None:
        session.scheduler.step()
    session.optimizer.zero_grad(set_to_none=True)
    return stepped


def _step(session: Session) -> bool:
    """Have the optimizer step; tell whether the scaler let it."""
    scaler = session.scaler
    if scaler is not None:
        scaler.unscale_(session.optimizer)
    if session.workload.clip_norm is not None:
        nn.utils.clip_grad_norm_(session.model.parameters(), session.workload.clip_norm)
    if scaler is None:
        session.optimizer.step()
        return True
    before = scaler.get_scale()
    scaler.step(session.optimizer)
    scaler.update()
    return scaler.get_scale() >= before


def loss_on(session: Session, batch: Any) -> torch.Tensor:
    """Return the loss of one batch, in the precision of the training."""
    with _autocast(session):
        return checked_loss(session.workload.loss(session.model, to_device(batch, session.place.device)))


def _autocast(session: Session) -> torch.autocast:
    enabled = session.config.train.precision is Precision.bf16
    return torch.autocast(session.place.device.type, dtype=torch.bfloat16, enabled=enabled)


def _evaluate(session: Session) -> float:
    """Return the metric over the whole validation set, on every rank the same samples in the same order."""
    workload = session.workload
    assert workload.eval_data is not None
    session.model.eval()
    total, count = 0.0, 0
    with torch.no_grad(), _autocast(session):
        for batch in DataLoader(workload.eval_data, batch_size=workload.batch_size):
            moved = to_device(batch, session.place.device)
            part, samples = measured(workload.metric, session.model.module, moved)
            total, count = total + part, count + samples
    if count == 0:
        raise ReproError("the metric counted no sample of eval_data", hint="is it empty? train.evaluate=false skips it")
    return total / count


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with every tensor in it on ``device``; lists, tuples and dicts are followed."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        moved = [to_device(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch


def _train_loader(config: RecordConfig, workload: Workload) -> "DataLoader[Any]":
    request = LoaderRequest(
        dataset=workload.train_data,
        batch_size=workload.batch_size,
        seed=config.seed,
        num_workers=config.data.num_workers,
        persistent_workers=config.data.persistent_workers,
        reseed=config.data.reseed.value,
    )
    return checked_loader((workload.train_loader or default_loader)(request))


def default_loader(request: LoaderRequest) -> "DataLoader[Any]":
    """Return the loader of a workload that brings none of its own."""
    return make_loader(
        request.dataset,
        shuffle=request.shuffle,
        seed=request.seed,
        reseed=request.reseed,
        batch_size=request.batch_size,
        num_workers=request.num_workers,
        persistent_workers=request.persistent_workers,
        drop_last=request.drop_last,
    )
