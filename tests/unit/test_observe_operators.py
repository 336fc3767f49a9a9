"""Modules and operators as they are observed: names, sources, inputs and outputs, and no bit moved."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.watch import watch
from ddp_repro.observe.window import MIB, Window

HERE = "test_observe_operators.py"


class Net(nn.Module):
    def __init__(self, *, reentrant: bool | None = None) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(4, 3))
        self.head = nn.Linear(3, 3)
        self.reentrant = reentrant

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        rows = self.table[index]
        if self.reentrant is not None:
            rows = checkpoint(self.head, rows, use_reentrant=self.reentrant)
        else:
            rows = self.head(rows)
        return self.head(rows)  # type: ignore[no-any-return]


LOOK_UP = f"{HERE}:{Path(__file__).read_text().splitlines().index('        rows = self.table[index]') + 1}"


def train(steps: int = 2, *, make: Callable[[], nn.Module] = Net) -> dict[str, Any]:
    torch.manual_seed(0)
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    for _ in range(steps):
        net(torch.tensor([0, 1, 1, 3])).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.tolist() for name, value in net.state_dict().items()}


def observed(capture: str, window: Window | None = None, **kwargs: Any) -> list[Any]:
    recorder = Recorder(None, pending=True)
    with watch(recorder, capture, window=window):
        train(**kwargs)
    return recorder.rows


@pytest.fixture
def rows() -> dict[str, tuple[str, bytes]]:
    return {row[2]: (row[3], row[4]) for row in observed("op", steps=1) if row[1] == "op"}


def test_a_backward_operator_goes_by_the_line_of_its_forward(rows: dict[str, tuple[str, bytes]]) -> None:
    spec, _ = rows["Net/aten::index_put#0.in"]
    assert spec.endswith(f"{LOOK_UP} by IndexBackward0")
    assert rows["Net/aten::index_put#0.out"][0] == "float32[4,3]"


def test_a_module_that_is_used_twice_is_called_by_its_call(rows: dict[str, tuple[str, bytes]]) -> None:
    assert {"head/aten::addmm#0.in", "head(2)/aten::addmm#0.in"} <= rows.keys()


def test_the_optimizers_operators_go_by_the_parameter_that_they_write(rows: dict[str, tuple[str, bytes]]) -> None:
    assert any(name.startswith("table/aten::addcdiv_") for name in rows)


def test_views_and_new_memory_are_no_operators(rows: dict[str, tuple[str, bytes]]) -> None:
    assert not [name for name in rows if "::view" in name or "::empty" in name or "::detach" in name]


def test_modules_tell_what_they_return() -> None:
    told = [row[2] for row in observed("module", steps=1) if row[1] == "forward"]
    assert told == ["head", "head(2)", "Net"]


@pytest.mark.parametrize("capture", ["module", "op"])
def test_only_the_steps_of_the_window_are_observed(capture: str) -> None:
    rows = observed(capture, Window(first=1, last=2), steps=4)
    assert {row[0] for row in rows if row[1] in ("forward", "op")} == {1, 2}


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("capture", ["module", "op"])
def test_no_bit_is_moved_and_no_mode_left(capture: str, reentrant: bool | None) -> None:
    make = partial(Net, reentrant=reentrant)
    plain = train(3, make=make)
    recorder = Recorder(None, pending=True)
    with watch(recorder, capture, window=Window(first=1, last=1)):
        assert train(3, make=make) == plain
    assert _get_current_dispatch_mode() is None
    assert [row for row in recorder.rows if row[1] == "forward"]


def test_a_mode_of_the_users_around_a_part_of_the_step_stays_in_order() -> None:
    seen: list[str] = []

    class Users(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = Net()

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            with Users():  # type: ignore[no-untyped-call]
                return self.inside(index)  # type: ignore[no-any-return]

    recorder = Recorder(None, pending=True)
    with watch(recorder, "op"), Users():  # type: ignore[no-untyped-call]
        train(2, make=Wrapped)
    assert _get_current_dispatch_mode() is None
    assert "aten::addmm" in seen
    assert any(row[2] == "inside.head/aten::addmm#0.in" for row in recorder.rows)


@pytest.mark.parametrize("capture", ["module", "op"])
def test_a_compiled_region_stays_compiled_and_that_is_told(capture: str, caplog: pytest.LogCaptureFixture) -> None:
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _example: list[torch.Tensor]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            graphs.append(len(list(graph.graph.nodes)))
            return graph.forward(*args)

        return run

    def make() -> nn.Module:
        return torch.compile(Net(), backend=backend)  # type: ignore[return-value]

    torch.compiler.reset()
    plain, ran = train(2, make=make), list(graphs)
    torch.compiler.reset()
    graphs.clear()
    caplog.set_level("INFO", logger="ddp_repro")
    with watch(Recorder(None, pending=True), capture):
        assert train(2, make=make) == plain
    assert graphs == ran
    assert len(ran) >= 2
    assert "stay compiled" in caplog.text


@pytest.mark.parametrize("capture", ["op", "module"])
def test_what_takes_too_much_room_ends_and_that_is_told(capture: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ddp_repro")
    rows = observed(capture, Window(limit_bytes=32 * 40), steps=30)
    assert len([row for row in rows if row[1] in ("op", "forward")]) <= 43
    assert any(row[2] == "capture.limit_mb" for row in rows)
    assert "no more of them are observed" in caplog.text


def test_the_state_of_the_generator_is_an_input_of_what_draws() -> None:
    def drawn(seed: int) -> tuple[list[bytes], list[bytes]]:
        recorder = Recorder(None, pending=True)
        with watch(recorder, "op"):
            torch.manual_seed(0)
            generator = torch.Generator().manual_seed(seed)
            net = nn.Linear(2, 2)
            (net(torch.ones(1, 2)) + torch.rand(1, 2, generator=generator)).sum().backward()
            torch.optim.SGD(net.parameters(), lr=0.1).step()
        told = {row[2]: row[4] for row in recorder.rows}
        return [told["aten::rand.generator#0.in"]], [told["aten::rand.generator#0.out"]]

    assert drawn(1) == drawn(1)
    assert drawn(1)[0] != drawn(2)[0]


def test_kept_tensors_are_those_of_their_part_within_the_room(tmp_path: Path) -> None:
    window = Window(keep="backward", keep_at=lambda step: tmp_path / f"{step}.safetensors", keep_bytes=MIB)
    observed("op", window, steps=1)
    kept = safetensors.torch.load_file(tmp_path / "0.safetensors")
    assert kept["Net/aten::index_put#0.out0"].shape == (4, 3)
    assert "head/aten::addmm#0.out0" not in kept
