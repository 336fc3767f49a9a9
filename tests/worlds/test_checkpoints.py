"""Checkpoints and settled buckets in real worlds: every rank comes back in its own bits, or all refuse alike.

This file is also the script whose forks are the ranks; all cases of a world share it, as a world costs seconds.
"""

import contextlib
import errno
import gc
import json
import os
import pickle
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

from ddp_repro import Progress, ReproError, load_checkpoint, save_checkpoint, settle_buckets
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.run.checkpoint.generators import process_states
from tests.worlds.forks import be_ranks, run_world

pytestmark = pytest.mark.worlds

NOW = Progress(step=4, epoch=1, position=4)
SETTLED: dict[str, dict[str, Any]] = {
    "plain": {},
    "small buckets": {"bucket_cap_mb": 0.01},
    "bucket views": {"gradient_as_bucket_view": True},
    "static graph": {"static_graph": True},
    "static graph and views": {"static_graph": True, "gradient_as_bucket_view": True},
    "unused parameters": {"find_unused_parameters": True},
}
PASSES = {"static graph": 2, "static graph and views": 2, "unused parameters": 0}
Bits = list[str]


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        wide = [layer for _ in range(3) for layer in (nn.Linear(48, 48), nn.Tanh())]
        self.layers = nn.Sequential(nn.Linear(6, 48), nn.BatchNorm1d(48), *wide, nn.Dropout(0.1), nn.Linear(48, 3))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(1), persistent=False)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen += x.detach().mean()
        return self.layers(x)  # type: ignore[no-any-return]


def wrapped(seed: int, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(Net(seed), **options)


def batches(first: int, last: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for number in range(first, last):
        draw = torch.Generator().manual_seed(1000 * dist.get_rank() + number)
        yield torch.randn(4, 6, generator=draw), torch.randint(3, (4,), generator=draw)


def train(model: nn.Module, optimizer: Any, first: int, last: int, *, accumulate: int = 1) -> list[Bits]:
    """Train on batches and return, for each step, the digests of the reduced gradients."""
    steps = []
    for number, (x, y) in enumerate(batches(first, last), start=1):
        takes_step = number % accumulate == 0
        with contextlib.nullcontext() if takes_step else model.no_sync():  # type: ignore[operator]
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        if takes_step:
            steps.append(bits_of([parameter.grad for parameter in model.parameters()]))
            optimizer.step()
            optimizer.zero_grad()
    return steps


def bits_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tensor_digest(value).hex()}"
    if isinstance(value, dict):
        return {str(key): bits_of(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits_of(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def all_bits(model: nn.Module, optimizer: Any) -> Any:
    inner = getattr(optimizer, "optim", optimizer)
    rate = optimizer.param_groups[0]["lr"]
    return bits_of([process_states(), list(model.parameters()), list(model.buffers()), inner.state_dict(), rate])


def diverge_random_states() -> None:
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(50 + dist.get_rank())


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


Made = tuple[nn.Module, Any]


def assert_goes_on(folder: Path, make: Callable[[int], Made], *, settle: bool = True) -> Path:
    """Train, save, train on; then build anew, load and train on: the same bits on every rank. Return the checkpoint."""
    model, optimizer = make(0)
    diverge_random_states()
    train(model, optimizer, 0, 4)
    versions = [parameter._version for parameter in model.parameters()]
    before = all_bits(model, optimizer)
    path = save_checkpoint(folder, model=model, optimizer=optimizer, progress=NOW)
    assert all_bits(model, optimizer) == before
    assert versions == [parameter._version for parameter in model.parameters()]
    straight = train(model, optimizer, 4, 7), all_bits(model, optimizer)

    other, fresh = make(7)
    if settle:
        settle_buckets(other, next(batches(9, 10))[0])
    refuse = mock.Mock(side_effect=AssertionError("something was unpickled"))
    with (
        mock.patch.object(pickle, "load", refuse),
        mock.patch.object(pickle, "loads", refuse),
        mock.patch.object(pickle, "Unpickler", refuse),
        mock.patch.object(torch, "load", refuse),
    ):
        restored = load_checkpoint(folder, model=other, optimizer=fresh)
    assert restored.progress == NOW
    assert restored.not_exact == ()
    assert all_bits(other, fresh) == before
    torch.rand(3)
    restored.restore_rng()
    resumed = train(other, fresh, 4, 7), all_bits(other, fresh)
    assert resumed == straight
    return path


# -- the cases


def each_rank_comes_back(folder: Path) -> None:
    def make(seed: int) -> Made:
        model = wrapped(seed)
        return model, adam(model)

    path = assert_goes_on(folder, make)
    rank = dist.get_rank()
    with safe_open(path / f"rank-{rank}.safetensors", framework="pt") as file:
        own = set(file.keys())
    assert any(key.startswith("rng/") for key in own)
    if rank:  # what DDP keeps equal is saved once
        assert {"model/layers.1.running_mean", "model/seen"} <= own
        assert not any(key.startswith(("model/layers.0", "optimizer/")) for key in own)


def what_ddp_ignores_comes_back(folder: Path) -> None:
    def make(seed: int) -> Made:
        inner = Net(seed)
        inner._ddp_params_and_buffers_to_ignore = ["layers.0.weight"]  # type: ignore[assignment]
        model = DistributedDataParallel(inner)
        return model, adam(model)

    assert_goes_on(folder, make)


def zero_comes_back(folder: Path) -> None:
    def make(seed: int) -> Made:
        model = wrapped(seed)
        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)

    assert_goes_on(folder, make)


def fsdp_comes_back(folder: Path) -> None:
    def make(seed: int) -> Made:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 3))
        for layer in (model[0], model[3], model):
            fully_shard(layer)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    path = assert_goes_on(folder, make, settle=False)
    assert len(list((path / "sharded").glob("*.safetensors"))) == dist.get_world_size()
    assert not list(path.rglob("*.metadata"))


def sharded_tensors_of_every_sort_come_back(folder: Path) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def made(fill: int) -> nn.Module:
        module = nn.Module()
        raw = torch.full((24,), fill + dist.get_rank(), dtype=torch.uint8)
        if not fill:
            raw[:4] = torch.tensor([0x23, 0x01, 0x80, 0x7F])  # as float32, a signalling NaN with a payload
        dtypes = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64, torch.uint16)
        for local in (raw > 1, *(raw.clone().view(dtype) for dtype in dtypes)):
            whole = torch.Size([len(local) * mesh.size()])
            sharded = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=whole, stride=(1,))
            module.register_buffer("b_" + str(local.dtype).partition(".")[2], sharded)
        return module

    saved, other = made(0), made(9)
    save_checkpoint(folder, model=saved, optimizer=None, progress=NOW)
    load_checkpoint(folder, model=other, optimizer=None)
    for (name, one), (_, two) in zip(saved.named_buffers(), other.named_buffers(), strict=True):
        assert bits_of(two.to_local()) == bits_of(one.to_local()), name  # type: ignore[attr-defined]


def a_rank_that_cannot_write(folder: Path) -> None:
    model = wrapped(0)
    optimizer = adam(model)
    save_checkpoint(folder, model=model, optimizer=optimizer, progress=NOW)
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    target = "ddp_repro.run.checkpoint.files.os.fsync"
    later = Progress(step=9, epoch=1, position=9)
    with mock.patch(target, full) if dist.get_rank() == 1 else contextlib.nullcontext():
        try:
            save_checkpoint(folder, model=model, optimizer=optimizer, progress=later)
        except ReproError as error:
            told = str(error)
    assert told.startswith("rank 1: cannot write ")
    assert told.endswith("No space left on device")
    dist.barrier()
    assert [path.name for path in folder.iterdir()] == ["step-00000004"]
    assert load_checkpoint(folder, model=model, optimizer=optimizer).progress == NOW


def ranks_that_do_not_agree(folder: Path) -> None:
    model = wrapped(0)
    optimizer = adam(model)
    now = Progress(step=4 + dist.get_rank() // 2, epoch=1, position=4)
    with pytest.raises(ReproError, match="rank 0 and rank 2 do not save the same"):
        save_checkpoint(folder, model=model, optimizer=optimizer, progress=now)
    extra = {"odd": object()} if dist.get_rank() == 1 else {"odd": 1}
    with pytest.raises(ReproError, match="rank 1: extra/odd is a object"):
        save_checkpoint(folder, model=model, optimizer=optimizer, progress=NOW, extra=extra)
    assert not folder.exists()


def damage_that_one_rank_sees(folder: Path) -> None:
    model = wrapped(0)
    optimizer = adam(model)
    save_checkpoint(folder, model=model, optimizer=optimizer, progress=NOW)
    path = save_checkpoint(folder, model=model, optimizer=optimizer, progress=Progress(step=5, epoch=1, position=5))
    if dist.get_rank() == 0:
        content = bytearray((path / "rank-2.safetensors").read_bytes())
        content[-9] ^= 4
        (path / "rank-2.safetensors").write_bytes(content)
    dist.barrier()
    before = all_bits(model, optimizer)
    with pytest.raises(ReproError, match=r"step-00000005 is damaged: rank-2.safetensors was changed"):
        load_checkpoint(path, model=model, optimizer=optimizer)
    assert all_bits(model, optimizer) == before
    assert load_checkpoint(folder, model=model, optimizer=optimizer).progress == NOW


def a_misfit_on_one_rank(folder: Path) -> None:
    model = nn.Linear(2, 2)
    save_checkpoint(folder, model=model, optimizer=adam(model), progress=NOW)
    other = nn.Linear(2, 3 if dist.get_rank() == 1 else 2)
    before = bits_of(list(other.parameters()))
    with pytest.raises(ReproError, match=r"rank 1: .* weight is float32\[3,2\] here and float32\[2,2\]"):
        load_checkpoint(folder, model=other, optimizer=adam(other))
    assert bits_of(list(other.parameters())) == before


def another_world_size(folder: Path) -> None:
    alone = folder.parent / "alone"  # saved by one rank, before there were several
    model = Net(3)
    optimizer = adam(model)
    diverge_random_states()
    before = all_bits(model, optimizer)
    size = dist.get_world_size()
    with pytest.raises(ReproError, match=rf"experiment.world_size \(1 saved, {size} here\)") as caught:
        load_checkpoint(alone, model=model, optimizer=optimizer)
    assert "allow=['experiment.world_size']" in caught.value.hint
    assert all_bits(model, optimizer) == before
    restored = load_checkpoint(alone, model=model, optimizer=optimizer, allow=["experiment.world_size"])
    assert restored.not_exact == ("experiment.world_size",)
    assert bits_of(list(model.parameters())) == bits_of(list(Net(0).parameters()))
    if dist.get_rank():
        assert all_bits(model, optimizer)[0] != before[0]  # Net(0) seeded it anew; nothing was restored


def settled(folder: Path, kind: str, *, accumulate: int = 1) -> None:
    """Assert that a resumed process is off without settling, and on with it, from its first reduced gradient."""

    def make(seed: int) -> Made:
        model = wrapped(seed, **SETTLED[kind])
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = make(0)
    train(model, optimizer, 0, 4, accumulate=accumulate)
    save_checkpoint(folder, model=model, optimizer=optimizer, progress=NOW)
    straight = train(model, optimizer, 4, 8, accumulate=accumulate)
    for settle in (False, True):
        other, fresh = make(3)
        if settle:
            before = all_bits(other, fresh), vars(other.module)["calls"], other.training
            assert settle_buckets(other, next(batches(9, 10))[0]) == PASSES.get(kind, 1)
            assert (all_bits(other, fresh), vars(other.module)["calls"], other.training) == before
            assert all(parameter.grad is None for parameter in other.parameters())
        load_checkpoint(folder, model=other, optimizer=fresh)
        resumed = train(other, fresh, 4, 8, accumulate=accumulate)
        assert (resumed[0] == straight[0]) is (settle or kind == "unused parameters")
        assert (resumed == straight) is (settle or kind == "unused parameters")


def settling_leaves_no_trace(folder: Path) -> None:
    kinds: list[dict[str, Any]] = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}]
    for options in kinds:
        model = wrapped(0, **options)
        optimizer = adam(model)
        model.eval()
        diverge_random_states()
        inner: Any = model.module.layers
        inner[0].weight.grad = torch.full_like(inner[0].weight, 7.0)
        held = inner[0].weight.grad
        before = all_bits(model, optimizer)
        with model.no_sync():
            settle_buckets(model, (next(batches(0, 1))[0],), loss=lambda output: output.square().sum())
        assert all_bits(model, optimizer) == before
        assert inner[0].weight.grad is held
        assert bool((held == 7).all())
        assert inner[0].bias.grad is None
        assert (model.training, model.require_backward_grad_sync, model.module.calls) == (False, True, 0)
        held = None
        del model, inner


def settling_a_settled_model(folder: Path) -> None:
    found = []
    for again in (False, True):
        for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}):
            model = wrapped(0, **options)
            optimizer = adam(model)
            steps = train(model, optimizer, 0, 4)
            if again:
                assert settle_buckets(model, next(batches(9, 10))[0]) == 0
            found.append((again, steps + train(model, optimizer, 4, 7)))
    assert [steps for again, steps in found if again] == [steps for again, steps in found if not again]


def settling_under_a_stateful_hook(folder: Path) -> None:
    model = wrapped(0)
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    before = state.iter, dict(state.error_dict), bits_of(state.rng.get_state())
    settle_buckets(model, next(batches(0, 1))[0])
    assert (state.iter, dict(state.error_dict), bits_of(state.rng.get_state())) == before


def settling_is_not_observed(folder: Path) -> None:
    recorder = Recorder(None, pending=True)
    with watch(recorder):
        model = wrapped(0)
        optimizer = adam(model)
        rows = list(recorder.rows)
        assert rows
        settle_buckets(model, next(batches(0, 1))[0])
        assert recorder.rows == rows
        assert recorder.step == 0
        train(model, optimizer, 0, 1)
        phases = {row[1] for row in recorder.rows[len(rows) :]}
        assert {"grad_local", "grad_reduced", "loss", "param"} <= phases


def settling_refuses(folder: Path) -> None:
    with pytest.raises(ReproError, match="got a Linear"):
        settle_buckets(nn.Linear(1, 1), torch.zeros(1, 1))
    model = wrapped(0)
    with (
        pytest.raises(ReproError, match="no floating tensor with a gradient"),
        mock.patch.object(model.module, "forward", return_value=torch.zeros(1)),
    ):
        settle_buckets(model, next(batches(0, 1))[0])
    lazy = nn.ModuleDict({"a": nn.Linear(6, 1), "b": nn.Linear(6, 1)})
    lazy.forward = lazy["a"].forward
    with pytest.raises(ReproError, match=r"no gradient to b\.weight, b\.bias"):
        settle_buckets(DistributedDataParallel(lazy), next(batches(0, 1))[0])


Case = Callable[[Path], None]


def settled_case(kind: str, accumulate: int = 1) -> Case:
    return lambda folder: settled(folder, kind, accumulate=accumulate)


SETTLING: dict[str, Case] = {
    **{f"settled, {kind}": settled_case(kind) for kind in SETTLED},
    "settled, accumulating": settled_case("plain", 2),
    "settled, accumulating in views": settled_case("bucket views", 2),
}
CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        *(each_rank_comes_back, what_ddp_ignores_comes_back, zero_comes_back, fsdp_comes_back),
        *(a_rank_that_cannot_write, ranks_that_do_not_agree, damage_that_one_rank_sees, a_misfit_on_one_rank),
        *(
            sharded_tensors_of_every_sort_come_back,
            another_world_size,
            settling_leaves_no_trace,
            settling_a_settled_model,
            settling_under_a_stateful_hook,
        ),
        *(settling_is_not_observed, settling_refuses),
    )
} | SETTLING
WORLDS: dict[int, dict[str, Case]] = {3: CASES, 4: {"each_rank_comes_back": each_rank_comes_back, **SETTLING}}


# -- what a rank does


def rank_main(folder: Path, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size)
    found = {}
    for name, case in WORLDS[size].items():
        try:
            case(folder / name.replace(" ", "_"))
            found[name] = ""
        except BaseException:  # noqa: BLE001  told by the test
            found[name] = traceback.format_exc()
        gc.collect()
        (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def dying_main(folder: Path, rank: int, size: int) -> None:
    """Save with all ranks; then again, while the last rank dies of it. Exit with 3 where the others were told."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size)
    model = Net(0)
    optimizer = adam(model)
    save_checkpoint(folder / "saved", model=model, optimizer=optimizer, progress=NOW)
    later = Progress(step=9, epoch=1, position=9)
    dies = mock.patch("ddp_repro.run.checkpoint.files.os.fsync", side_effect=lambda _: os._exit(9))
    try:
        with dies if rank == size - 1 else contextlib.nullcontext():
            save_checkpoint(folder / "saved", model=model, optimizer=optimizer, progress=later)
    except Exception:  # noqa: BLE001  what gloo raises
        os._exit(3)
    os._exit(0)


def main(folder: Path, size: int, rank_main: Callable[[Path, int, int], None]) -> list[int]:
    """Save alone, then be as many ranks as forks; return their exit codes."""
    model = Net(0)
    save_checkpoint(folder / "alone", model=model, optimizer=adam(model), progress=NOW)
    return be_ranks(size, lambda rank: rank_main(folder, rank, size))


# -- what is asserted


@pytest.fixture(scope="module")
def worlds() -> dict[int, list[dict[str, str]]]:
    found = {}
    for size in WORLDS:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
            done = run_world(__file__, folder, size)
            assert done.returncode == 0, done.stderr
            found[size] = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]
    return found


@pytest.mark.parametrize(("size", "case"), [(size, case) for size, cases in WORLDS.items() for case in cases])
def test_in_a_world(worlds: dict[int, list[dict[str, str]]], size: int, case: str) -> None:
    told = [found.get(case, "it never came to it") for found in worlds[size]]
    assert told == [""] * size, "\n".join(told)


def test_a_rank_that_dies_while_all_save(quick_path: Path) -> None:
    done = run_world(__file__, quick_path, 3, "dying")
    assert json.loads(done.stdout) == [3, 3, 9], done.stderr
    assert [path.name for path in (quick_path / "saved").glob("step-*")] == ["step-00000004"]
    model = Net(5)
    allow = ["experiment.world_size"]
    assert load_checkpoint(quick_path / "saved", model=model, optimizer=adam(model), allow=allow).progress == NOW
    assert bits_of(list(model.parameters())) == bits_of(list(Net(0).parameters()))


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2]), dying_main if "dying" in sys.argv else rank_main))
