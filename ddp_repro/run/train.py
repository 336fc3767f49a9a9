"""The built-in training loop: plain DDP training that knows nothing of being observed."""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ddp_repro.config import DdpConfig, Precision, RecordConfig
from ddp_repro.errors import ReproError
from ddp_repro.run.data import make_loader
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
    loader: "DataLoader[Any]"


def wrap(model: nn.Module, options: DdpConfig, device: torch.device) -> DistributedDataParallel:
    """Wrap the model in DDP, on its device; only options that differ from DDP's own defaults are passed on."""
    defaults = DdpConfig()
    chosen = {name: value for name, value in asdict(options).items() if value != getattr(defaults, name)}
    device_ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model.to(device), device_ids=device_ids, **chosen)


def prepare(config: RecordConfig, place: Place, workload: Workload) -> Session:
    """Build model wrapper, loader, optimizer and scheduler."""
    loader = _train_loader(config, workload)
    model = wrap(workload.model, config.ddp, place.device)
    optimizer = checked_optimizer(workload.optimizer(model.module))
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
        loader=loader,
    )


def total_steps(config: RecordConfig, batches: int) -> int:
    """Return the number of optimizer steps of the whole run, given the batches of one epoch."""
    steps_an_epoch = -(-batches // config.train.accumulate)
    whole = config.train.epochs * steps_an_epoch
    return whole if config.train.max_steps is None else min(whole, config.train.max_steps)


def train(session: Session) -> list[dict[str, float]]:
    """Train to the end and return each epoch's validation result (``epoch``, ``metric``)."""
    history = []
    left = total_steps(session.config, len(session.loader))
    for epoch in range(session.config.train.epochs):
        left -= _train_epoch(session, epoch, left)
        if session.config.train.evaluate and session.workload.eval_data is not None:
            history.append({"epoch": float(epoch), "metric": _evaluate(session)})
            log.info("epoch %d: metric %.6f", epoch, history[-1]["metric"])
        if left == 0:
            break
    return history


def _train_epoch(session: Session, epoch: int, limit: int) -> int:
    session.model.train()  # type: ignore[no-untyped-call]
    set_epoch(session.loader, epoch)
    steps = 0
    for group in islice(_grouped(session.loader, session.config.train.accumulate), limit):
        take_step(session, group)
        steps += 1
    return steps


def set_epoch(loader: "DataLoader[Any]", epoch: int) -> None:
    """Tell the epoch to whatever in the loader wants to know it: sampler, batch sampler and the sampler within that."""
    batch_sampler: Any = loader.batch_sampler
    parts: list[Any] = [loader.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)]
    for part in parts:
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)


def _grouped(loader: "DataLoader[Any]", size: int) -> Iterator[list[Any]]:
    """Yield the loader's batches in groups of ``size``; the last group of an epoch may be smaller."""
    batches = iter(loader)
    while group := list(islice(batches, size)):
        yield group


def take_step(session: Session, batches: list[Any]) -> None:
    """Take one optimizer step over these micro-batches; gradients are reduced with the last one."""
    for number, batch in enumerate(batches, start=1):
        last = number == len(batches)
        with nullcontext() if last else session.model.no_sync():
            loss = _loss(session, batch) / len(batches)
            loss.backward()  # type: ignore[no-untyped-call]
    if session.workload.clip_norm is not None:
        nn.utils.clip_grad_norm_(session.model.parameters(), session.workload.clip_norm)
    session.optimizer.step()
    if session.scheduler is not None:
        session.scheduler.step()
    session.optimizer.zero_grad(set_to_none=True)


def _loss(session: Session, batch: Any) -> torch.Tensor:
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
