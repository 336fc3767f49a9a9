"""What was saved comes back in the same bits: tensors, optimizers, schedulers, scalers, extras, random states."""

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ddp_repro import Progress, ReproError, Restored, load_checkpoint, save_checkpoint
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.run.checkpoint.generators import process_states

NOW = Progress(step=3, epoch=1, position=2)


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))


def batch() -> torch.Tensor:
    """Return a batch that every library's global generator had a hand in."""
    return torch.randn(6, 4) + random.random() + torch.from_numpy(np.random.normal(size=(6, 4))).float()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any = None, scaler: Any = None) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(batch()).square().mean()
        (scaler.scale(loss) if scaler else loss).backward()
        return loss

    if scaler:
        closure()
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step(closure)  # type: ignore[arg-type]
    if scheduler:
        scheduler.step()


def bits(*things: Any) -> list[Any]:
    """Return all that ``things`` hold, tensors by their digests."""

    def flat(thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            return (str(thing.dtype), tuple(thing.shape), tensor_digest(thing).hex())
        if isinstance(thing, dict):
            return {str(key): flat(part) for key, part in thing.items()}
        if isinstance(thing, (list, tuple)):
            return [flat(part) for part in thing]
        if isinstance(thing, np.ndarray):
            return thing.tolist()
        return float(thing).hex() if isinstance(thing, float) else thing

    return [flat(thing) for thing in things]


@pytest.fixture
def _seeded() -> None:
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
        {"params": [p for p in model.parameters() if p.dim() >= 2], "betas": (0.8, 0.99), "note": "matrices"},
    ]


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True),
    "tensor lr": lambda model: torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01, dtype=torch.float64)),
    "fused": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, fused=True),
    "groups": lambda model: torch.optim.AdamW(groups_of(model), lr=0.1 + 0.2),
    "lbfgs": lambda model: torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3),
    "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.1),
    "rprop": lambda model: torch.optim.Rprop(model.parameters()),
    "named": lambda model: torch.optim.SGD(model.named_parameters(), lr=0.1, momentum=0.5),
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7),
    "multi step": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 5], gamma=1 / 3),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=20),
    "sequential": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.LinearLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)],
        milestones=[2],
    ),
    "warm restarts": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2),
}
CASES = [(name, "none") for name in OPTIMIZERS] + [
    (optimizer, name) for name in SCHEDULERS for optimizer in ("sgd", "tensor lr") if name != "none"
]


@pytest.mark.usefixtures("_seeded")
@pytest.mark.parametrize(("optimizer", "scheduler"), CASES)
def test_training_goes_on_in_the_same_bits(quick_path: Path, optimizer: str, scheduler: str) -> None:
    def built(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        model = net(seed)
        made = OPTIMIZERS[optimizer](model)
        return (
            model,
            made,
            SCHEDULERS[scheduler](made) if optimizer != "tensor lr" or scheduler != "one cycle" else None,
        )

    straight = built(0)
    for _ in range(3):
        step(*straight)
    model, made, schedule = straight
    save_checkpoint(quick_path, model=model, optimizer=made, scheduler=schedule, progress=NOW)
    saved = bits(model.state_dict(), made.state_dict(), schedule and schedule.state_dict())
    for _ in range(3):
        step(*straight)

    resumed = built(9)
    model, made, schedule = resumed
    restored = load_checkpoint(quick_path, model=model, optimizer=made, scheduler=schedule)
    assert restored == Restored(progress=NOW, values={}, not_exact=(), rng=restored.rng)
    assert bits(model.state_dict(), made.state_dict(), schedule and schedule.state_dict()) == saved
    random.random(), np.random.random(), torch.rand(1)
    restored.restore_rng()
    for _ in range(3):
        step(*resumed)
    for one, other in zip(straight, resumed, strict=True):
        assert bits(one and one.state_dict()) == bits(other and other.state_dict())


@pytest.mark.usefixtures("_seeded")
def test_saving_moves_nothing(quick_path: Path) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    grads = [parameter.grad for parameter in model.parameters()]
    before = bits(model.state_dict(), optimizer.state_dict(), grads, process_states())
    versions = [tensor._version for tensor in (*model.parameters(), *model.buffers())]
    save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW, extra={"ema": AveragedModel(model)})
    assert bits(model.state_dict(), optimizer.state_dict(), grads, process_states()) == before
    assert [tensor._version for tensor in (*model.parameters(), *model.buffers())] == versions
    assert all(one.grad is grad for one, grad in zip(model.parameters(), grads, strict=True))


class Odd(nn.Module):
    """Holds tensors of every sort that there is."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        words = torch.randint(-(2**31), 2**31 - 1, (12,), generator=draw, dtype=torch.int32)
        if not seed:
            words[:4] = torch.tensor([0x7FC00123, -0x80000000, 0x7F800001, -1])  # payloads, -0, a signalling NaN
        raw = words.view(torch.uint8)
        self.plain = nn.Parameter(words.view(torch.float32).clone())
        self.transposed = nn.Parameter(torch.randn(4, 3, generator=draw).t())
        self.channels = nn.Parameter(torch.randn(2, 3, 4, 5, generator=draw).to(memory_format=torch.channels_last))
        self.scalar = nn.Parameter(torch.randn((), generator=draw))
        self.tied = self.plain
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu):
            self.register_buffer("b_" + str(dtype).partition(".")[2], raw.view(dtype).clone())
        for dtype in (torch.complex64, torch.complex128, torch.uint16, torch.int64):
            self.register_buffer("b_" + str(dtype).partition(".")[2], raw.view(dtype).clone(), persistent=False)
        self.register_buffer("part", self.get_buffer("b_float64")[1:3])  # lies in another one
        self.register_buffer("flags", raw > 100)
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("none", None)
        self.register_buffer("spread", torch.randn(1, generator=draw).expand(4))
        self.register_buffer("strided", torch.randn(4, 4, generator=draw)[::2, 1:])
        self.note = f"made with {seed}"

    def get_extra_state(self) -> Any:
        return {"note": self.note, "scale": torch.tensor(0.5)}

    def set_extra_state(self, state: Any) -> None:
        self.note = state["note"]


def test_every_sort_of_tensor_comes_back(quick_path: Path) -> None:
    saved, other = Odd(0), Odd(1)
    optimizer, fresh = (torch.optim.SGD([model.scalar], lr=0.1) for model in (saved, other))
    path = save_checkpoint(quick_path, model=saved, optimizer=optimizer, progress=NOW)
    parameters = dict(other.named_parameters())
    strides = {name: tensor.stride() for name, tensor in other.named_parameters()}
    load_checkpoint(path, model=other, optimizer=fresh)

    assert bits(dict(other.named_parameters())) == bits(dict(saved.named_parameters()))
    assert bits(dict(other.named_buffers())) == bits(dict(saved.named_buffers()))
    assert {name: tensor.stride() for name, tensor in other.named_parameters()} == strides
    assert all(dict(other.named_parameters())[name] is one for name, one in parameters.items())
    assert other.tied is other.plain
    assert other.note == "made with 0"
    with safe_open(path / "model.safetensors", framework="pt") as file:  # what other tools see
        assert {"plain", "b_complex64", "b_bfloat16"} <= set(file.keys())
        assert "tied" not in file.keys()  # noqa: SIM118  no mapping


class Master(torch.optim.SGD):
    """Keeps its state in another dtype than its parameters, in nested forms, and a callable in a group."""

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {
                    "master": parameter.detach().float() / 3,
                    "step": torch.tensor(7, dtype=torch.int16),
                    "history": [torch.arange(3), (1.5, None)],
                    "like": torch.zeros_like(parameter),
                    "fn": print,
                }
        self.state["shared"] = {"count": 3}  # type: ignore[index]


def test_state_of_an_optimizer_is_not_cast_and_keeps_its_strides(quick_path: Path) -> None:
    weight = nn.Parameter(torch.randn(2, 3, 4, 5).bfloat16().to(memory_format=torch.channels_last))
    model = nn.ParameterDict({"w": weight})
    optimizer = Master(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["rule"] = print
    optimizer.step()
    save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW)

    other = nn.ParameterDict({"w": nn.Parameter(torch.zeros_like(weight))})
    fresh = Master(other.parameters(), lr=0.5)
    fresh.param_groups[0]["rule"] = len
    fresh.step()
    load_checkpoint(quick_path, model=other, optimizer=fresh)
    found, saved = fresh.state[other["w"]], optimizer.state[weight]
    assert bits(found) == bits({key: value for key, value in saved.items() if key != "fn"})
    assert found["like"].stride() == weight.stride()
    assert fresh.state["shared"] == {"count": 3}  # type: ignore[index]
    assert fresh.param_groups[0]["lr"] == 0.1
    assert fresh.param_groups[0]["rule"] is len


def test_what_cannot_be_saved_is_told(quick_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["rule"] = print
    save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW)
    assert "optimizer/group0.rule is an object that cannot be saved" in caplog.text


def test_a_tensor_that_a_group_holds_stays_the_same_object(quick_path: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.25))
    save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW)
    held = optimizer.param_groups[0]["lr"]
    held.fill_(1.0)
    load_checkpoint(quick_path, model=model, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] is held
    assert held.item() == 0.25


@pytest.mark.usefixtures("_seeded")
def test_a_scaler_comes_back(quick_path: Path) -> None:
    def built(seed: int) -> tuple[Any, ...]:
        model = net(seed)
        return model, torch.optim.SGD(model.parameters(), lr=0.1), None, torch.amp.GradScaler("cpu", growth_interval=2)

    straight = built(0)
    for _ in range(3):
        step(*straight)
    save_checkpoint(quick_path, model=straight[0], optimizer=straight[1], scaler=straight[3], progress=NOW)
    step(*straight)
    resumed = built(1)
    load_checkpoint(quick_path, model=resumed[0], optimizer=resumed[1], scaler=resumed[3])
    step(*resumed)
    assert bits(resumed[0].state_dict(), resumed[3].state_dict()) == bits(
        straight[0].state_dict(), straight[3].state_dict()
    )


@pytest.mark.usefixtures("_seeded")
def test_extras_come_back(quick_path: Path) -> None:
    def built(seed: int) -> tuple[nn.Module, dict[str, Any]]:
        model = net(seed)
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))  # type: ignore[no-untyped-call]
        drawn = {
            "torch": torch.Generator().manual_seed(seed),
            "numpy": np.random.default_rng(seed),
            "old": np.random.RandomState(seed),
            "python": random.Random(seed),
        }
        return model, {"ema": ema, **drawn}

    model, extra = built(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    extra["ema"].update_parameters(model)
    extra["old"].normal()
    values = {"best": {"metric": 0.1 + 0.2, "at": (3, None)}, "history": [torch.arange(3.0)]}
    save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW, extra={**extra, **values})

    other, fresh = built(5)
    restored = load_checkpoint(
        quick_path, model=other, optimizer=torch.optim.SGD(other.parameters(), lr=1.0), extra=fresh
    )
    assert bits(restored.values) == bits(values)
    assert isinstance(restored.values["best"]["at"], tuple)
    assert bits(fresh["ema"].state_dict()) == bits(extra["ema"].state_dict())
    assert torch.equal(torch.rand(3, generator=fresh["torch"]), torch.rand(3, generator=extra["torch"]))
    assert fresh["numpy"].random() == extra["numpy"].random()
    assert fresh["old"].normal() == extra["old"].normal()
    assert fresh["python"].random() == extra["python"].random()


def test_several_models_optimizers_and_schedulers(quick_path: Path) -> None:
    def built(seed: int) -> tuple[dict[str, nn.Module], list[torch.optim.Optimizer], dict[str, Any]]:
        models: dict[str, nn.Module] = {"g": net(seed), "d": net(seed + 1)}
        optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(one.parameters()) for one in models.values()]
        for one, optimizer in zip(models.values(), optimizers, strict=True):
            step(one, optimizer)
        return models, optimizers, {"first": torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.7)}

    def state(built: tuple[Any, Any, Any]) -> list[Any]:
        return bits(*(one.state_dict() for one in (*built[0].values(), *built[1], *built[2].values())))

    one, other = built(0), built(5)
    one[2]["first"].step()
    save_checkpoint(quick_path, model=one[0], optimizer=one[1], scheduler=one[2], progress=NOW)
    load_checkpoint(quick_path, model=other[0], optimizer=other[1], scheduler=other[2])
    assert state(one) == state(other)


def test_names_count_and_not_positions(quick_path: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW)
    other = net(3)
    turned = torch.optim.Adam(reversed(list(other.parameters())))
    load_checkpoint(quick_path, model=torch.compile(other), optimizer=turned)  # type: ignore[arg-type]
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert bits(optimizer.state[one]) == bits(turned.state[two]), name


def test_the_root_keeps_the_newest(quick_path: Path) -> None:
    model: Any = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def save(at: int, keep: int = 2) -> Path:
        now = Progress(step=at, epoch=0, position=at)
        return save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=now, keep=keep)

    for at in (1, 2, 3):
        assert save(at) == quick_path / f"step-0000000{at}"
    assert sorted(path.name for path in quick_path.iterdir()) == ["step-00000002", "step-00000003"]
    with torch.no_grad():
        model[3].bias.fill_(7)
    save(3)  # one of this step is there: replaced whole
    model[3].bias.data.zero_()
    assert load_checkpoint(quick_path, model=model, optimizer=optimizer).progress.step == 3
    assert model[3].bias.tolist() == [7.0, 7.0]
    assert save(1) == quick_path / "step-00000001"  # what was just written stays
    assert sorted(path.name for path in quick_path.iterdir()) == ["step-00000001", "step-00000003"]
    with pytest.raises(ReproError, match="keep=0"):
        save(4, keep=0)


def test_nothing_is_unpickled(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    extra = {"ema": AveragedModel(model), "best": 1.0}
    path = save_checkpoint(quick_path, model=model, optimizer=optimizer, progress=NOW, extra=extra)
    (path / "poison.pt").write_bytes(pickle.dumps(print))
    assert all(json.loads(file.read_text()) for file in path.glob("*.json"))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("something was unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load"), (np, "load")):
        monkeypatch.setattr(owner, name, refuse)
    assert load_checkpoint(quick_path, model=model, optimizer=optimizer, extra=extra).progress == NOW
