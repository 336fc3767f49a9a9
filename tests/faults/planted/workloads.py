"""Each function builds the tiny digits workload with one fault planted; ``expected.yaml`` says what must be found."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler

from ddp_repro import LoaderRequest, Workload, make_loader
from ddp_repro.workload import digits

Sample = tuple[Tensor, int]


def clean() -> Workload:
    """Batch norm under default DDP, 1,499 samples that divide by nothing, a sequential validation loop."""
    return digits.build(size="tiny")


def seed_after_model() -> Workload:
    """The model is built before the seed is set."""
    torch.seed()
    workload = digits.build(size="tiny")
    torch.manual_seed(0)
    return workload


class _Wrapped(Dataset[Sample]):
    """A data set around another one."""

    def __init__(self, inner: Dataset[Any]) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]


class _Unseeded(_Wrapped):
    def __getitem__(self, index: int) -> Sample:
        image, label = self.inner[index]
        return image + np.float32(np.random.default_rng().normal(0, 0.01)), label


class _Seeded(_Wrapped):
    def __getitem__(self, index: int) -> Sample:
        image, label = self.inner[index]
        return image + np.float32(np.random.default_rng(index).normal(0, 0.01)), label


def unseeded_library() -> Workload:
    """The data set makes a NumPy generator that nobody seeds."""
    workload = clean()
    return replace(workload, train_data=_Unseeded(workload.train_data))


def seeded_library() -> Workload:
    """Clean twin of `unseeded_library`."""
    workload = clean()
    return replace(workload, train_data=_Seeded(workload.train_data))


class _Relabelled(_Wrapped):
    def __init__(self, inner: Dataset[Any], order: list[str]) -> None:
        super().__init__(inner)
        self.number = {name: number for number, name in enumerate(order)}

    def __getitem__(self, index: int) -> Sample:
        image, label = self.inner[index]
        return image, self.number[NAMES[label]]


NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def hash_ordered_labels() -> Workload:
    """The labels' numbers are the order of a set of strings."""
    workload = clean()
    return replace(workload, train_data=_Relabelled(workload.train_data, list(set(NAMES))))


def sorted_labels() -> Workload:
    """Clean twin of `hash_ordered_labels`."""
    workload = clean()
    return replace(workload, train_data=_Relabelled(workload.train_data, sorted(set(NAMES))))


def _with_backward_hook(hook: Callable[[int], Callable[[Tensor], Tensor] | None]) -> Workload:
    """Return the clean workload whose gradient at the logits goes through ``hook(step)`` of this rank."""
    workload = clean()
    calls = [0]

    def loss(model: nn.Module, batch: Sample) -> Tensor:
        images, labels = batch
        logits = model(images)
        changed = hook(calls[0])
        calls[0] += 1
        if changed is not None:
            logits.register_hook(changed)
        return nn.functional.cross_entropy(logits, labels)  # type: ignore[arg-type]

    return replace(workload, loss=loss)


def one_rank_differs_in_backward() -> Workload:
    """On rank 2 the gradient of step 3 gets noise that nobody seeds: that rank's all-reduce input differs."""

    def hook(step: int) -> Callable[[Tensor], Tensor] | None:
        if step != 3 or dist.get_rank() != 2:
            return None
        noise = 1 + random.SystemRandom().random() * 1e-3
        return lambda gradient: gradient * noise

    return _with_backward_hook(hook)


class _Drifting(SGD):
    """SGD that on rank 1 moves one element of one parameter by its last bit after step 2."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.01)
        self._calls = 0
        self._drifting = dict(model.named_parameters())["head.1.bias"]

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        if self._calls == 2 and dist.get_rank() == 1:
            with torch.no_grad():
                value = self._drifting[0]
                value.copy_(torch.nextafter(value, value + 1))
        self._calls += 1
        return result


def drifting_parameter() -> Workload:
    """A parameter of rank 1 is one last bit off after step 2."""
    return replace(clean(), optimizer=_Drifting)


def plain_sgd() -> Workload:
    """Clean twin of `drifting_parameter`."""

    def build(model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.01)

    return replace(clean(), optimizer=build)


def _own_loader(seed: Callable[[int], int]) -> Workload:
    def loader(request: LoaderRequest) -> DataLoader[Any]:
        sampler: DistributedSampler[Any] = DistributedSampler(
            request.dataset, shuffle=True, seed=seed(dist.get_rank()), drop_last=False
        )
        return DataLoader(request.dataset, batch_size=request.batch_size, sampler=sampler)

    return replace(clean(), train_loader=loader)


def sampler_seeded_by_rank() -> Workload:
    """Every rank shuffles by a seed of its own, so the ranks' shards overlap and miss samples."""
    return _own_loader(lambda rank: 100 + rank)


def sampler_seeded_alike() -> Workload:
    """Clean twin of `sampler_seeded_by_rank`: a plain DistributedSampler."""
    return _own_loader(lambda rank: 100)


class _PrivateGenerator(_Wrapped):
    """Draws from a NumPy generator of its own, which every worker gets a copy of."""

    def __init__(self, inner: Dataset[Any], *, seeded: bool) -> None:
        super().__init__(inner)
        self.rng = np.random.default_rng(7)
        self._pending = seeded

    def __getitem__(self, index: int) -> Sample:
        worker = get_worker_info()
        if self._pending and worker is not None:
            self.rng = np.random.default_rng(worker.seed)
            self._pending = False
        image, label = self.inner[index]
        return image + np.float32(self.rng.normal(0, 0.01)), label


def repeated_worker_draws() -> Workload:
    """Every worker draws the same numbers, in every epoch."""
    workload = clean()
    return replace(workload, train_data=_PrivateGenerator(workload.train_data, seeded=False))


def seeded_worker_draws() -> Workload:
    """Clean twin of `repeated_worker_draws`: the generator is seeded by worker."""
    workload = clean()
    return replace(workload, train_data=_PrivateGenerator(workload.train_data, seeded=True))


def same_noise_on_all_ranks() -> Workload:
    """Every rank is given the same training seed, so all drop the same units: correlated, but reproducible."""
    workload = clean()
    seeded = [False]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        if not seeded[0]:
            torch.manual_seed(123)
            seeded[0] = True
        return workload.loss(model, batch)

    return replace(workload, loss=loss)


def set_epoch_forgotten() -> Workload:
    """A sampler whose epoch nobody can set: the second epoch's order is the first one's."""

    class Stubborn(DistributedSampler[Any]):
        def set_epoch(self, epoch: int) -> None:
            pass

    def loader(request: LoaderRequest) -> DataLoader[Any]:
        sampler = Stubborn(request.dataset, shuffle=True, seed=3)
        return DataLoader(request.dataset, batch_size=request.batch_size, sampler=sampler)

    return replace(clean(), train_loader=loader)


def own_loader_of_ours() -> Workload:
    """Clean twin of `set_epoch_forgotten`: make_loader, asked for by the workload itself."""

    def loader(request: LoaderRequest) -> DataLoader[Any]:
        return make_loader(request.dataset, seed=request.seed, batch_size=request.batch_size)

    return replace(clean(), train_loader=loader)


def noisy_evaluation() -> Workload:
    """The validation metric draws from a generator that nobody seeds; training itself is clean."""
    workload = clean()
    assert workload.metric is not None
    measure = workload.metric

    def metric(model: nn.Module, batch: Any) -> tuple[float, int]:
        total, count = measure(model, batch)
        return total + random.SystemRandom().random(), count

    return replace(workload, metric=metric)


class _WithTeacher(nn.Module):
    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.student(images)
        return logits


def _with_frozen_parameter(draw: Callable[[], float]) -> Workload:
    workload = clean()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            dict(model.named_parameters())["module.scale"].fill_(draw())
        return workload.loss(model, batch)

    return replace(workload, model=_WithTeacher(workload.model), loss=loss)


def noisy_frozen_parameter() -> Workload:
    """A parameter that no optimizer steps gets noise that nobody seeds, on every rank its own, and feeds nothing."""
    return _with_frozen_parameter(random.SystemRandom().random)


def steady_frozen_parameter() -> Workload:
    """Clean twin of `noisy_frozen_parameter`."""
    return _with_frozen_parameter(lambda: 2.0)


class _Duck:
    """Steps like an optimizer without being one, so nothing of it is observed."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.sub_(0.01 * parameter.grad * random.SystemRandom().random())

    def zero_grad(self, **_: Any) -> None:
        for parameter in self._parameters:
            parameter.grad = None


def unobserved_optimizer() -> Workload:
    """An optimizer that torch does not know: its steps cannot be observed, so nothing may be concluded."""
    return replace(clean(), optimizer=_Duck, scheduler=None)  # type: ignore[arg-type]
