"""What trainers do, each trained unobserved and observed in one real world: the same bits, and the rows that matter.

This file is also the script that the ranks run; several cases share one world, as a world costs seconds.
"""

import copy
import functools
import gc
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.trace.reader import Observation, read_trace
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from tests.worlds.forks import be_ranks, run_world

pytestmark = pytest.mark.worlds

RANKS, STEPS = 3, 3
Final = list[torch.Tensor]


def net(*, buffers: bool = True) -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8) if buffers else nn.Tanh(), nn.Linear(8, 3))


def batches(steps: int = STEPS) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        yield torch.randn(4, 6, generator=draw), torch.randint(3, (4,), generator=draw)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    optimizer.zero_grad()
    loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


# -- the cases


def manual_loop() -> Final:
    model = net()
    optimizer = sgd(model)
    for batch in batches():
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            if name != "2.bias":  # forgotten
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        optimizer.step()
    return [*model.parameters(), *model.buffers()]


def fsdp() -> Final:
    model = net(buffers=False)
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for batch in batches():
        step(model, optimizer, batch)
    return [parameter.to_local() for parameter in model.parameters()]  # type: ignore[attr-defined]


def zero() -> Final:
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    for batch in batches():
        step(model, optimizer, batch)
    return list(model.parameters())


def by_hand(_state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] / dist.get_world_size())  # type: ignore[no-any-return]


def comm_hook(kind: str) -> Final:
    model = DistributedDataParallel(net())
    if kind == "power":
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        model.register_comm_hook(None, by_hand if kind == "by hand" else default_hooks.fp16_compress_hook)
    optimizer = sgd(model)
    for batch in batches(5):
        step(model, optimizer, batch)
    return list(model.parameters())


def gan() -> Final:
    first, second = DistributedDataParallel(net()), DistributedDataParallel(nn.Linear(6, 3))
    optimizers = [sgd(first), torch.optim.Adam(second.parameters(), fused=True)]
    for batch in batches():
        step(first, optimizers[0], batch)
        for _ in range(2):
            step(second, optimizers[1], batch)
    return [*first.parameters(), *second.parameters()]


def scaler() -> Final:
    model = DistributedDataParallel(net(buffers=False))
    optimizer = sgd(model)
    scale = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    for batch in batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, batch)
        scale.scale(loss).backward()  # type: ignore[no-untyped-call]
        scale.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scale.step(optimizer)
        scale.update()
    return list(model.parameters())


def averaged() -> Final:
    model = DistributedDataParallel(net())
    ema = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.5))  # type: ignore[no-untyped-call]
    optimizer = sgd(model)
    for batch in batches():
        step(model, optimizer, batch)
        ema.update_parameters(model.module)
        ema(batch[0])
    file = io.BytesIO()
    torch.save(model.module, file)
    file.seek(0)
    restored = torch.load(file, weights_only=False)
    again = copy.deepcopy(model.module)
    assert torch.equal(restored(batch[0]), again(batch[0]))
    return [*model.parameters(), *ema.parameters(), *again.buffers()]


def sparse() -> Final:
    torch.manual_seed(3)
    embedding = nn.Embedding(10, 4, sparse=True)
    model = DistributedDataParallel(nn.Sequential(embedding, nn.Flatten(), nn.Linear(12, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        step(model, optimizer, (x[:, :3].abs().mul(3).long().clamp(max=9), y))
    return list(model.parameters())


def odd_parameters() -> Final:
    """Trains shared, frozen, unfrozen and replaced parameters, with the optimizer made before the wrapper."""
    torch.manual_seed(5)
    inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    inner[2].weight = inner[0].weight
    inner[3].bias.requires_grad_(False)
    optimizer = sgd(inner)
    model = DistributedDataParallel(inner, find_unused_parameters=True)
    for number, batch in enumerate(batches(4)):
        if number == 2:
            inner[3].bias.requires_grad_()
            inner[0].bias = nn.Parameter(torch.zeros(6))
            optimizer.add_param_group({"params": [inner[0].bias]})
        step(model, optimizer, batch)
    return list(model.parameters())


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.drop, self.reentrant = net(buffers=False), nn.Dropout(0.2), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.inner[0], x.requires_grad_(), use_reentrant=self.reentrant)
        return self.inner[2](self.drop(self.inner[1](hidden)))  # type: ignore[no-any-return]


def checkpointed(*, reentrant: bool) -> Final:
    model = DistributedDataParallel(Checkpointed(reentrant=reentrant))
    optimizer = sgd(model)
    for batch in batches():
        step(model, optimizer, batch)
    return list(model.parameters())


def compiled(*, outside: bool) -> Final:
    torch._dynamo.reset()
    inner = net(buffers=False)
    wrapped: Any = DistributedDataParallel(inner if outside else torch.compile(inner))
    model: Any = torch.compile(wrapped) if outside else wrapped
    optimizer = sgd(model)
    for batch in batches():
        step(model, optimizer, batch)
    return list(inner.parameters())


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in batches():
            yield from zip(*batch, strict=True)


def iterable() -> Final:
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    for batch in DataLoader(Stream(), batch_size=4):
        step(model, optimizer, batch)
    return list(model.parameters())


def sync_batch_norm() -> Final:
    """Holds torch to refusing it on CPU, wrapped and bare: where it runs one day, this case has to train it."""
    torch.manual_seed(7)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(net())  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match=r"^SyncBatchNorm layers only work with GPU modules$"):
        DistributedDataParallel(model)
    optimizer = sgd(model)
    with pytest.raises(ValueError, match=r"^SyncBatchNorm expected input tensor to be on GPU or XPU or privateuseone$"):
        step(model, optimizer, next(batches()))
    model.eval()
    step(model, optimizer, next(batches()))
    return list(model.parameters())


CASES: dict[str, Callable[[], Final]] = {
    "sync_batch_norm": sync_batch_norm,
    "manual_loop": manual_loop,
    "fsdp": fsdp,
    "zero": zero,
    **{f"hook {kind}": functools.partial(comm_hook, kind) for kind in ("fp16", "power", "by hand")},
    "gan": gan,
    "scaler": scaler,
    "averaged": averaged,
    "sparse": sparse,
    "odd_parameters": odd_parameters,
    "reentrant": functools.partial(checkpointed, reentrant=True),
    "checkpointed": functools.partial(checkpointed, reentrant=False),
    "iterable": iterable,
}
COMPILED: dict[str, Callable[[], Final]] = {
    "compiled inside": functools.partial(compiled, outside=False),
    "compiled outside": functools.partial(compiled, outside=True),
}
ALL = CASES | COMPILED


# -- what a rank does


def rank_main(folder: Path, rank: int, cases: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    finals = {}
    for name in cases:
        before = digests_of(ALL[name])
        meta = TraceMeta(identity="", launch=0, rank=rank, world_size=RANKS, capture="step")
        writer = TraceWriter(folder / f"{name}-{rank}.arrows", meta)
        with watch(Recorder(writer)):
            during = digests_of(ALL[name])
        writer.close("finished")
        finals[name] = [before, during]
    (folder / f"{rank}.json").write_text(json.dumps(finals))
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)


def digests_of(case: Callable[[], Final]) -> list[str]:
    digests = [tensor_digest(tensor).hex() for tensor in case()]
    gc.collect()  # a wrapper has to be gone before the process group is
    return [*digests, tensor_digest(torch.get_rng_state()).hex()]


# -- what is asserted

Rows = list[Observation]


class World:
    """What the ranks of one world say."""

    def __init__(self, folder: Path, cases: list[str]) -> None:
        done = run_world(__file__, folder, *cases)
        assert done.returncode == 0, done.stderr
        self.finals = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]
        self._folder = folder

    def ranks(self, case: str) -> list[Rows]:
        traces = [read_trace(self._folder / f"{case}-{rank}.arrows") for rank in range(RANKS)]
        assert all(trace.end == "finished" for trace in traces)
        return [[trace.observation(row) for row in range(len(trace))] for trace in traces]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        yield World(Path(folder), list(CASES))


def seen(rows: Rows, phase: str, name: str | None = None) -> Rows:
    return [row for row in rows if row.phase == phase and name in {None, row.name}]


def marked(rows: Rows, phase: str, suffix: str) -> set[str]:
    return {row.name for row in rows if row.phase == phase and row.spec.endswith(suffix)}


def unequal(ranks: list[Rows], phase: str) -> set[str]:
    """Return the names whose digests are not the same on all ranks."""
    held = [{(row.step, row.name): row.digest for row in seen(rows, phase)} for rows in ranks]
    return {key[1] for key in held[0] if len({one.get(key) for one in held}) > 1}


def assert_bits_stay(world: World, case: str) -> None:
    for rank, finals in enumerate(world.finals):
        before, during = finals[case]
        assert before == during, f"rank {rank}"


@pytest.mark.parametrize("case", list(CASES))
def test_observing_moves_no_bit(world: World, case: str) -> None:
    assert_bits_stay(world, case)


UNDER_DDP = [name for name in CASES if name not in {"manual_loop", "fsdp", "sync_batch_norm"}]


@pytest.mark.parametrize("case", UNDER_DDP)
def test_what_is_called_replicated_is_equal_on_all_ranks(world: World, case: str) -> None:
    ranks = world.ranks(case)
    held = [[(r.step, r.phase, r.name, r.digest) for r in rows if r.spec.endswith(" replicated")] for rows in ranks]
    if case == "odd_parameters":  # what was unfrozen or replaced after wrapping is not reduced: the fault shows
        assert held[0] != held[1]
        return
    assert held[0] == held[1] == held[2]
    assert {"init", "grad_reduced", "grad_step", "param"} <= {phase for _, phase, _, _ in held[0]}
    assert any(name == "group0.lr" for _, _, name, _ in held[0]) is (case != "zero")
    assert not any(row.spec.endswith(" unmanaged") for row in ranks[0])


def test_a_manual_loop_shows_what_its_ranks_do_not_reduce(world: World) -> None:
    ranks = world.ranks("manual_loop")
    names = {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}
    buffers = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    for rows in ranks:
        assert marked(rows, "init", " unmanaged") == names
        for phase in ("grad_reduced", "grad_step", "param"):
            assert marked(rows, phase, " unmanaged") == names
        assert {row.name for row in seen(rows, "grad_local")} == names
        assert {row.name for row in seen(rows, "buffer")} == buffers
        assert {row.step for row in seen(rows, "init")} == {-1}
    assert unequal(ranks, "init") == set()
    assert unequal(ranks, "grad_local") == names
    assert unequal(ranks, "grad_reduced") == unequal(ranks, "grad_step") == unequal(ranks, "param") == {"2.bias"}


def test_what_torch_refuses_is_refused_under_observation_and_training_goes_on(world: World) -> None:
    for rows in world.ranks("sync_batch_norm"):
        assert {row.name for row in seen(rows, "param")} == {
            f"{n}.{kind}" for n in range(3) for kind in ("weight", "bias")
        }
        assert {row.step for row in seen(rows, "loss")} == {0}


def test_shards_are_seen_with_their_placement_where_the_optimizer_gets_them(world: World) -> None:
    ranks = world.ranks("fsdp")
    names = {"0.weight", "0.bias", "2.weight", "2.bias"}
    for rows in ranks:
        for phase in ("init", "grad_reduced", "grad_step", "param"):
            assert {row.name for row in seen(rows, phase)} == names
            assert {row.spec for row in seen(rows, phase, "2.weight")} == {"float32[3,8] S(0)"}
        assert seen(rows, "grad_local") == []
        assert "2.weight.exp_avg" in {row.name for row in seen(rows, "optimizer")}
    assert unequal(ranks, "param") == names


def test_each_optimizer_of_several_is_seen_and_the_first_counts(world: World) -> None:
    for rows in world.ranks("gan"):
        steps = [(row.step, row.name) for row in seen(rows, "param") if row.name.endswith(("0.bias", "model1.bias"))]
        pairs = [[(n, "0.bias"), (n + 1, "model1.bias"), (n + 1, "model1.bias")] for n in range(STEPS)]
        assert steps == [step for pair in pairs for step in pair]


def test_the_scale_and_clipped_gradients_are_seen(world: World) -> None:
    for rows in world.ranks("scaler"):
        assert [row.value for row in seen(rows, "scaler")] == [16.0, 32.0, 32.0]
        assert seen(rows, "grad_step", "0.weight")[0].digest != seen(rows, "grad_reduced", "0.weight")[0].digest


def test_copies_of_the_model_write_no_rows(world: World) -> None:
    for rows in world.ranks("averaged"):
        for number in range(STEPS):
            at_step = [row for row in rows if row.step == number]
            assert len(seen(at_step, "buffer", "1.running_mean")) == 2, "at the forward and after the step"
            assert len(seen(at_step, "grad_local", "0.weight")) == 1


def test_an_optimizer_that_is_older_than_the_wrapper_is_seen_once(world: World) -> None:
    ranks = world.ranks("odd_parameters")
    for rows in ranks:
        for number, bias in enumerate((0, 0, 1, 1)):
            at_step = [row for row in rows if row.step == number]
            assert len(seen(at_step, "grad_local", "0.weight")) == 1
            assert len(seen(at_step, "grad_local", "3.bias")) == bias
        assert seen(rows, "init", "2.weight") == []
        assert len(seen(rows, "init", "0.weight")) == 1
    assert unequal(ranks, "grad_reduced") == {"0.bias", "3.bias"}


def test_sparse_gradients_keep_their_layout(world: World) -> None:
    for rows in world.ranks("sparse"):
        assert all("sparse" in row.spec for row in seen(rows, "grad_reduced", "0.weight"))


def test_a_stream_has_its_batches(world: World) -> None:
    for rows in world.ranks("iterable"):
        assert len([row for row in rows if row.name == "Stream[0].batch[0]"]) == STEPS


def test_compiled_models_are_observed_too() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = World(Path(folder), list(COMPILED))
        for case in COMPILED:
            assert_bits_stay(found, case)
            for rows in found.ranks(case):
                names = {"0.weight", "0.bias", "2.weight", "2.bias"}
                for phase in ("init", "grad_local", "grad_step", "param"):
                    assert {row.name for row in seen(rows, phase)} == names
                assert {row.name for row in seen(rows, "grad_reduced")} == {*names, "bucket_layout"}


if __name__ == "__main__":
    place, named = Path(sys.argv[1]), sys.argv[2:]
    sys.exit(any(be_ranks(RANKS, lambda rank: rank_main(place, rank, named))))
