"""What the probes see of training, in a world of one rank within this process; and that they leave nothing behind."""

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import backward
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizer_module
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from ddp_repro.errors import ReproError
from ddp_repro.observe import torch_internals
from ddp_repro.observe.digest import spec_of, tensor_digest
from ddp_repro.observe.recorder import Recorder, number, text
from ddp_repro.observe.watch import watch

Row = tuple[int, str, str, str, bytes, float | None]


class Rows:
    """A writer that keeps what it gets, and how much was there at each flush."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.flushed: list[int] = []

    def append(self, *row: Any) -> None:
        self.rows.append(row)

    def extend(self, rows: list[Row]) -> None:
        self.rows.extend(rows)

    def append_many(self, *rows: Any) -> None:
        *labels, digests, values = rows
        for at, value in enumerate(values):
            self.append(*labels, digests[16 * at : 16 * at + 16], value)

    def flush(self) -> None:
        self.flushed.append(len(self.rows))

    def of(self, phase: str, step: int | None = None) -> list[Row]:
        return [row for row in self.rows if row[1] == phase and step in {None, row[0]}]

    def names(self, phase: str, step: int | None = None) -> list[str]:
        return [row[2] for row in self.of(phase, step)]

    def phases(self, step: int) -> list[str]:
        return list(dict.fromkeys(row[1] for row in self.rows if row[0] == step))


@contextlib.contextmanager
def observing(capture: str = "step") -> Iterator[tuple[Rows, Recorder]]:
    gc.collect()  # optimizers that other tests left in cycles would be found, as those of a script are
    rows = Rows()
    with watch(Recorder(rows), capture=capture) as recorder:  # type: ignore[arg-type]
        yield rows, recorder


@pytest.fixture(scope="module", autouse=True)
def lone_world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    gc.collect()
    dist.destroy_process_group()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.body(x)))  # type: ignore[no-any-return]


PARAMETERS = ["body.weight", "body.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"]
BUFFERS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def some_input() -> torch.Tensor:
    return torch.arange(20.0).reshape(5, 4).sin()


def test_one_step_is_seen_in_the_order_in_which_it_happens() -> None:
    with observing() as (rows, recorder):
        model = DistributedDataParallel(Net())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
        loss = model(some_input()).square().sum()
        loss.backward()
        gradients = {name: tensor_digest(p.grad) for name, p in model.module.named_parameters() if p.grad is not None}
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    assert recorder.step == 1
    assert rows.names("init", -1) == PARAMETERS + BUFFERS
    assert all(row[3].endswith(" replicated") for row in rows.of("init"))
    assert rows.phases(0) == ["buffer", "loss", "grad_local", "grad_reduced", "grad_step", "param", "optimizer"]
    [(_, _, name, spec, digest, value)] = rows.of("loss")
    assert (name, spec, digest, value) == ("loss", "float32[]", tensor_digest(loss), loss.item())
    assert rows.names("grad_local")[0].startswith("head.")
    assert sorted(rows.names("grad_local")) == sorted(PARAMETERS)
    assert {row[2]: row[4] for row in rows.of("grad_local")} == gradients
    reduced = rows.of("grad_reduced")
    assert [row[2] for row in reduced] == [*PARAMETERS, "bucket_layout"]
    assert [row[3] for row in reduced][-2:] == ["float32[2] replicated", "layout"]
    assert {row[2]: row[4] for row in reduced[:-1]} == gradients
    assert rows.names("grad_step") == PARAMETERS
    assert all(row[4] != gradients[row[2]] for row in rows.of("grad_step")), "clipping is seen"
    assert {row[2]: row[4] for row in rows.of("param")} == {
        n: tensor_digest(p) for n, p in model.module.named_parameters()
    }
    assert all(row[3].endswith(" replicated") for row in rows.of("param"))
    assert [row[3].endswith(" replicated") for row in rows.of("buffer")] == [True] * 3 + [False] * 3
    states = [row for row in rows.of("optimizer") if row[2].startswith("body.weight.")]
    assert [row[2] for row in states] == [f"body.weight.{key}" for key in ("step", "exp_avg", "exp_avg_sq")]
    assert ("group0.lr", "float64[] replicated", 0.25) in [(row[2], row[3], row[5]) for row in rows.of("optimizer")]
    assert "group0.betas[1]" in rows.names("optimizer")
    assert rows.flushed[0] == len(rows.rows), "all is written when the step ends"


def test_a_backward_in_no_sync_reduces_nothing() -> None:
    with observing() as (rows, _):
        model = DistributedDataParallel(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.no_sync():
            model(some_input()).sum().backward()
        first = len(rows.rows)
        assert rows.of("grad_reduced") == []
        model(some_input()).sum().backward()
        optimizer.step()
    assert first == 0, "nothing is written before the step ends"
    assert rows.names("grad_local").count("head.bias") == 2
    assert rows.names("grad_reduced").count("head.bias") == 1
    assert rows.names("loss") == ["loss", "loss"]
    # After a forward in no_sync the next one does not broadcast the buffers: they may differ there.
    assert [row[3].endswith(" replicated") for row in rows.of("buffer")] == [True] * 3 + [False] * 6


def test_a_forward_past_ddp_is_expected_to_be_reduced_and_its_buffers_are_not() -> None:
    with observing() as (rows, recorder):
        model = DistributedDataParallel(Net())
        model.module(some_input()).sum().backward()
        recorder.flush()
    assert rows.names("grad_reduced")[:6] == PARAMETERS
    assert not any(row[3].endswith(" replicated") for row in rows.of("buffer"))


@pytest.mark.filterwarnings("ignore")
def test_buffers_that_ddp_never_broadcasts_are_expected_to_agree() -> None:
    with observing() as (rows, _):
        model = DistributedDataParallel(Net(), broadcast_buffers=False)
        model(some_input())
        model.eval()
        with torch.no_grad():
            model(some_input())
    assert [row[3].endswith(" replicated") for row in rows.of("buffer")] == [True] * 3


def test_what_ddp_ignores_is_not_called_replicated() -> None:
    net = Net()
    ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(net, ["body.bias", "norm.running_var"])
    with observing() as (rows, _):
        model = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(some_input()).sum().backward()
        optimizer.step()
    for phase in ("init", "param", "buffer"):
        unmanaged = {row[2] for row in rows.of(phase) if not row[3].endswith(" replicated")}
        expected = {"init": {"body.bias", "norm.running_var"}, "param": {"body.bias"}, "buffer": set(BUFFERS)}
        assert unmanaged == expected[phase]
    assert "body.bias" in rows.names("grad_local")
    assert "body.bias" not in rows.names("grad_reduced")


def test_parameters_that_are_unfrozen_or_replaced_later_are_seen() -> None:
    net = Net()
    net.body.weight.requires_grad_(False)
    with observing() as (rows, _):
        model = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(some_input()).sum().backward()
        optimizer.step()
        net.body.weight.requires_grad_()
        net.head.bias = nn.Parameter(torch.zeros(2))
        optimizer.add_param_group({"params": [net.head.bias]})
        optimizer.zero_grad()
        model(some_input()).sum().backward()
        optimizer.step()
    assert "body.weight" in rows.names("init")
    assert "body.weight" not in rows.names("grad_local", 0)
    for phase in ("grad_local", "grad_reduced", "grad_step"):
        assert {"body.weight", "head.bias"} <= set(rows.names(phase, 1)), phase
    assert rows.names("param", 1).count("head.bias") == 2, "the old one and the new one"


def test_a_ddp_object_that_is_there_already_is_seen() -> None:
    model = DistributedDataParallel(Net())
    with observing() as (rows, recorder):
        model(some_input()).sum().backward()
        recorder.flush()
    assert rows.names("init", -1) == PARAMETERS + BUFFERS
    assert rows.names("grad_reduced")[:6] == PARAMETERS


def test_a_second_model_has_names_of_its_own() -> None:
    with observing() as (rows, _):
        first, second = DistributedDataParallel(nn.Linear(2, 2)), DistributedDataParallel(nn.Linear(2, 2))
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
        for _ in range(2):
            for model, optimizer in zip((first, second), optimizers, strict=True):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    assert rows.names("init") == ["weight", "bias", "model1.weight", "model1.bias"]
    assert rows.names("param") == ["weight", "bias", "model1.weight", "model1.bias"] * 2
    assert [row[0] for row in rows.of("param")] == [0, 0, 1, 1, 1, 1, 2, 2], "the first optimizer's steps are counted"
    assert rows.names("grad_reduced")[-1] == "model1.bucket_layout"


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_nests_backwards_and_the_outermost_counts(use_reentrant: bool) -> None:
    class Checkpointed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.body, x, use_reentrant=use_reentrant))  # type: ignore[no-any-return]

    net = Checkpointed()
    net.norm = nn.BatchNorm1d(3).requires_grad_(False)
    with observing() as (rows, recorder):
        model = DistributedDataParallel(net)
        model(some_input().requires_grad_()).sum().backward()
        recorder.flush()
    names = ["body.weight", "body.bias", "head.weight", "head.bias"]
    assert rows.names("loss") == ["loss"]
    assert sorted(rows.names("grad_local")) == sorted(names)
    assert rows.names("grad_reduced") == [*names, "bucket_layout"]
    assert rows.rows[-1][1] == "grad_reduced"


def test_torch_autograd_backward_is_caught_however_it_was_imported_and_grad_is_not() -> None:
    with observing() as (rows, recorder):
        model = DistributedDataParallel(nn.Linear(2, 1))
        output = model(torch.ones(3, 2))
        backward([output], [torch.ones_like(output)])
        weight = model.module.weight
        torch.autograd.grad((weight * 2).sum(), weight)
        recorder.flush()
    assert [(row[2], row[3], row[5]) for row in rows.of("loss")] == [("loss", "float32[3,1]", None)]
    assert rows.names("grad_local") == ["bias", "weight"]


def test_a_backward_that_raises_raises_the_same_and_the_next_is_seen() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, _grad: torch.Tensor) -> torch.Tensor:
            raise KeyError("planted")

    with observing() as (rows, recorder):
        with pytest.raises(KeyError, match="planted"):
            Fails.apply(torch.ones(1, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]
        model = DistributedDataParallel(nn.Linear(2, 1))
        model(torch.ones(1, 2)).sum().backward()
        recorder.flush()
    assert rows.names("loss") == ["loss", "loss"]
    assert "bucket_layout" in rows.names("grad_reduced")


def test_a_closure_is_watched_at_its_end() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = torch.optim.LBFGS([parameter], max_iter=3, history_size=2)
    returned = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (parameter**4).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        returned.append(loss)
        return loss

    with observing() as (rows, recorder):
        result = optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert recorder.step == 1
    assert result is returned[0]
    assert len(rows.of("grad_step")) == len(rows.of("loss")) == len(returned) > 1
    assert [row[1] for row in rows.rows[:4]] == ["init", "loss", "grad_local", "grad_step"]
    assert {"group0.param0.old_dirs[0]", "group0.param0.n_iter"} <= set(rows.names("optimizer"))


def test_names_of_parameters_that_no_ddp_knows_come_from_their_module() -> None:
    net = Net()
    groups: list[dict[str, Any]] = [
        {"params": net.body.parameters()},
        {"params": [torch.zeros(1, requires_grad=True)]},
    ]
    optimizer = torch.optim.SGD(groups, 0.1)
    with observing() as (rows, _):
        optimizer.step()
    assert [(row[2], row[3]) for row in rows.of("param")] == [
        ("body.weight", "float32[3,4]"),
        ("body.bias", "float32[3]"),
        ("group1.param0", "float32[1]"),
    ]


def test_an_optimizer_that_is_older_than_the_wrapper_leaves_its_parameters_to_ddp() -> None:
    net = Net()
    with observing() as (rows, _):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        model = DistributedDataParallel(net)
        model(some_input()).sum().backward()
        optimizer.step()
    assert sorted(rows.names("grad_local")) == sorted(PARAMETERS)
    assert rows.names("init") == PARAMETERS + BUFFERS
    assert all(row[3].endswith(" replicated") for row in rows.of("grad_step"))


def test_a_wrapper_that_comes_after_the_first_backward_takes_the_parameters_over() -> None:
    net = Net()
    with observing() as (rows, _):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(some_input()).sum().backward()
        assert all(parameter._post_accumulate_grad_hooks for parameter in net.parameters())
        model = DistributedDataParallel(net)
        optimizer.step()
        model(some_input()).sum().backward()
        optimizer.step()
    assert rows.names("grad_local", 0).count("head.bias") == rows.names("grad_local", 1).count("head.bias") == 1
    assert not any(parameter._post_accumulate_grad_hooks for parameter in net.parameters())


def test_without_a_process_group_of_several_nothing_is_called_reduced() -> None:
    net = Net()
    with observing() as (rows, _):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(some_input()).sum().backward()
        optimizer.step()
    assert rows.names("init", -1) == PARAMETERS
    assert sorted(rows.names("grad_local")) == sorted(PARAMETERS)
    assert rows.of("grad_reduced") == []
    assert rows.names("buffer") == BUFFERS
    assert not any(" " in row[3] for row in rows.rows)


class Outer(torch.optim.Optimizer):
    """An optimizer that steps another one, as ZeroRedundancyOptimizer does."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()
        for group in self.param_groups:
            for parameter in group["params"]:
                with torch.no_grad():
                    parameter.mul_(2.0)


def test_the_outermost_step_counts_and_the_inner_state_is_seen() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = Outer(torch.optim.SGD([parameter], lr=0.5, momentum=0.9))
    with observing() as (rows, recorder):
        optimizer.step()
        optimizer.step()
    assert recorder.step == 2
    assert rows.names("grad_step") == ["group0.param0"] * 2
    assert rows.of("param")[-1][4] == tensor_digest(parameter)
    assert "group0.param0.momentum_buffer" in rows.names("optimizer")


def test_an_optimizer_whose_step_raised_is_counted_on() -> None:
    class Stumbles(torch.optim.SGD):
        fails = True

        def step(self, _closure: Any = None) -> None:  # type: ignore[override]
            if self.fails:
                raise RuntimeError("planted")

    optimizer = Stumbles([nn.Parameter(torch.ones(1))], lr=0.1)
    with observing() as (_, recorder):
        with pytest.raises(RuntimeError, match="planted"):
            optimizer.step()
        assert recorder.step == 0
        optimizer.fails = False
        optimizer.step()
        assert recorder.step == 1


def test_a_scheduler_shows_in_the_learning_rate() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with observing() as (rows, _):
        for _ in range(3):
            optimizer.step()
            scheduler.step()
    assert [row[5] for row in rows.of("optimizer") if row[2] == "group0.lr"] == [1.0, 0.5, 0.25]


def test_the_scale_belongs_to_the_step_that_it_was_updated_after() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with observing() as (rows, recorder):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
        for scale in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale((parameter * scale).sum()).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
    assert recorder.step == 2, "a step that overflowed is skipped"
    assert [(row[0], row[2], row[5]) for row in rows.of("scaler")] == [
        (0, "scale", 8.0),
        (1, "scale", 4.0),
        (1, "scale", 8.0),
    ]


def test_with_capture_off_only_steps_are_counted() -> None:
    seen: list[int] = []
    rows = Rows()
    with watch(Recorder(rows, seen.append), capture="off"):  # type: ignore[arg-type]
        model = DistributedDataParallel(Net())
        optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.1))
        model(some_input()).sum().backward()
        optimizer.step()
        optimizer.step()
        assert model.module._forward_pre_hooks == {}
    assert seen == [1, 2]
    assert rows.rows == []


def test_on_step_is_told_after_the_rows_are_written() -> None:
    rows = Rows()
    written: list[tuple[int, bool]] = []
    recorder = Recorder(rows, lambda step: written.append((step, rows.flushed[-1] == len(rows.rows) > 0)))  # type: ignore[arg-type]
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    with watch(recorder):
        optimizer.step()
        optimizer.step()
    assert written == [(1, True), (2, True)]


def attributes() -> dict[str, Any]:
    """Everything that a watch replaces, and the tables that it registers in."""
    iterator = torch_internals.LOADER_ITERATOR
    replaced = {name: vars(iterator)[name] for name in ("__init__", "__next__", "_next_index", "_reset")}
    return {
        **replaced,
        "ddp": vars(DistributedDataParallel)["__init__"],
        "forward": vars(DistributedDataParallel)["_inside_ddp_forward"],
        "group": vars(torch.optim.Optimizer)["add_param_group"],
        "engine": vars(torch.autograd)["_engine_run_backward"],
        "backward": torch.Tensor.backward,
        "worker": torch_internals.WORKER_LOOP_OWNER._worker_loop,
        "update": vars(torch.amp.GradScaler)["update"],
        "before": dict(optimizer_module._global_optimizer_pre_hooks),
        "after": dict(optimizer_module._global_optimizer_post_hooks),
    }


@pytest.mark.parametrize("capture", ["step", "off"])
def test_everything_is_taken_off_even_after_an_error(capture: str) -> None:
    before = attributes()
    model = DistributedDataParallel(Net())
    with contextlib.suppress(ZeroDivisionError), observing(capture) as (_, _):
        assert capture == "off" or attributes() != before
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in DataLoader([1, 2]):  # type: ignore[arg-type]
            model(some_input()).sum().backward()
            optimizer.step()
        raise ZeroDivisionError
    after = attributes()
    assert all(after[name] is before[name] for name in before if name not in {"before", "after"})
    assert (after["before"], after["after"]) == (before["before"], before["after"])
    assert not model.module._forward_pre_hooks
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_two_watches_one_after_the_other_see_the_same() -> None:
    seen = []
    for _ in range(2):
        torch.manual_seed(0)
        with observing() as (rows, _):
            model = DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(some_input()).sum().backward()
            optimizer.step()
        seen.append(rows.rows)
        del model, optimizer
    assert seen[0] == seen[1]


def test_a_patch_that_was_put_over_ours_stays_and_ours_does_nothing() -> None:
    original = vars(DistributedDataParallel)["__init__"]
    try:
        with observing() as (rows, _):
            ours = vars(DistributedDataParallel)["__init__"]

            def theirs(self: Any, *args: Any, **kwargs: Any) -> None:
                ours(self, *args, **kwargs)

            DistributedDataParallel.__init__ = theirs  # type: ignore[method-assign]
        assert vars(DistributedDataParallel)["__init__"] is theirs
        DistributedDataParallel(nn.Linear(1, 1))
        assert rows.rows == []
    finally:
        DistributedDataParallel.__init__ = original  # type: ignore[method-assign]


def test_the_wrapper_can_go_while_it_is_observed() -> None:
    with observing():
        model = DistributedDataParallel(Net())
        net = model.module
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(some_input()).sum().backward()
        optimizer.step()
        wrapper, module = weakref.ref(model), weakref.ref(net)
        del model
        gc.collect()
        assert wrapper() is None
        assert not net._forward_pre_hooks
        del net, optimizer
        gc.collect()
        assert module() is None


def test_a_forked_child_records_nothing() -> None:
    with observing() as (_, recorder):
        recorder.add("param", "x", torch.ones(1))
        child = os.fork()
        if child == 0:
            os._exit(0 if recorder.silent else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not recorder.silent


def test_rows_of_many_threads_are_all_kept() -> None:
    rows = Rows()
    recorder = Recorder(rows)  # type: ignore[arg-type]

    def add(name: str) -> None:
        for _ in range(2000):
            recorder.add_rows([(0, "data", name, "int64[]", bytes(16), None)] * 5)

    threads = [threading.Thread(target=add, args=(str(index),)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.flush()
    assert len(rows.rows) == 40_000
    assert len(rows.flushed) > 1, "a long stretch without a step is passed on"


def test_another_capture_level_is_refused() -> None:
    with pytest.raises(ReproError, match="capture=everything"), watch(Recorder(None), capture="everything"):
        pass


def test_a_torch_without_what_is_relied_on_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_internals, "_EXPECTED", ((torch.autograd, "_gone"),))
    before = attributes()
    with pytest.raises(ReproError, match=r"torch\.autograd\._gone"), watch(Recorder(None)):
        pass
    assert attributes() == before


def test_facts_know_the_kinds_of_numbers() -> None:
    kinds = [number(True), number(1), number(1.0), number(-0.0), number(0.0), number(1 << 70), text("1")]
    assert [kind[0] for kind in kinds] == ["bool[]", "int64[]", "float64[]", "float64[]", "float64[]", "int", "text"]
    assert len({kind[1] for kind in kinds}) == len(kinds)
    assert number(7)[1] == tensor_digest(torch.tensor(7))


def test_a_distributed_tensor_counts_by_shard_and_placement() -> None:
    mesh = init_device_mesh("cpu", (1,))
    tensors = [distribute_tensor(torch.arange(6.0), mesh, [kind]) for kind in (Shard(0), Replicate(), Shard(0))]
    assert spec_of(tensors[0]) == "float32[6] S(0)"
    digests = [tensor_digest(tensor) for tensor in tensors]
    assert digests[0] == digests[2] != digests[1]
