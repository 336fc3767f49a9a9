"""What is damaged, foreign, of another version or of another training is refused, before anything is touched."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ddp_repro import Progress, ReproError, Restored, load_checkpoint, save_checkpoint
from ddp_repro.run.checkpoint.folder import MANIFEST
from ddp_repro.run.checkpoint.generators import process_states
from tests.unit.test_checkpoint_roundtrip import bits

IDENTITY = {"experiment": {"seed": 1, "config": {"lr": 0.1}}, "software": {"torch": "2"}, "num_workers": 2}


class Training:
    """A model and its optimizer, and whether anything in them or in the random states was touched."""

    def __init__(self, *, seed: int = 0, width: int = 3) -> None:
        torch.manual_seed(seed)
        self.model: nn.Module = nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width))
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.model.parameters())
        self.model(torch.randn(4, 2)).sum().backward()
        self.optimizer.step()
        self.extra: dict[str, Any] = {}

    def state(self) -> Any:
        return bits(self.model.state_dict(), self.optimizer.state_dict(), process_states(), self.extra)

    def save(self, root: Path, step: int = 1, **options: Any) -> Path:
        now = Progress(step=step, epoch=0, position=step)
        return save_checkpoint(
            root, model=self.model, optimizer=self.optimizer, progress=now, extra=self.extra, **options
        )

    def load(self, path: Path, **options: Any) -> Restored:
        return load_checkpoint(path, model=self.model, optimizer=self.optimizer, **{"extra": self.extra, **options})

    def refuses(self, path: Path, told: str, **options: Any) -> ReproError:
        before = self.state()
        with pytest.raises(ReproError, match=told) as caught:
            self.load(path, **options)
        assert self.state() == before
        assert caught.value.hint
        return caught.value


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1
    path.write_bytes(content)


FILES = ("model.safetensors", "optimizer.safetensors", "rank-0.safetensors", "rank-0.json", MANIFEST)
DAMAGES: dict[str, Callable[[Path], None]] = {
    "first bit": lambda path: flip(path, 0),
    "middle bit": lambda path: flip(path, path.stat().st_size // 2),
    "last bit": lambda path: flip(path, -1),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),  # type: ignore[dict-item]
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),  # type: ignore[dict-item]
    "empty": lambda path: path.write_bytes(b""),  # type: ignore[dict-item]
    "missing": lambda path: path.unlink(),
    "pickle": lambda path: path.write_bytes(pickle.dumps(print)),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_what_is_damaged_is_refused_and_the_older_one_taken(
    quick_path: Path, file: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training()
    training.save(quick_path, 1)
    newest = training.save(quick_path, 2)
    if (damage, file) == ("longer", MANIFEST):
        (newest / file).write_bytes(b"{}" + (newest / file).read_bytes())
    else:
        DAMAGES[damage](newest / file)
    training.refuses(newest, "cut|changed|missing|never finished|not JSON|no checkpoint of ddp_repro")
    assert training.load(quick_path).progress.step == 1
    assert "step-00000002 is skipped" in caplog.text
    shutil.rmtree(quick_path / "step-00000001")
    training.refuses(quick_path, "holds no whole checkpoint")


def test_no_flipped_bit_of_the_manifest_goes_unseen(quick_path: Path) -> None:
    training = Training()
    path = training.save(quick_path)
    content = (path / MANIFEST).read_bytes()
    for at in range(0, len(content), 7):
        flip(path / MANIFEST, at)
        training.refuses(path, "changed|not JSON|no checkpoint of ddp_repro|damaged")
        (path / MANIFEST).write_bytes(content)
    assert training.load(path).progress.step == 1


def test_a_later_version_is_refused_and_not_passed_over(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    training.save(quick_path, 1)
    monkeypatch.setattr("ddp_repro.run.checkpoint.manifest.SCHEMA", 2)
    later = training.save(quick_path, 2)
    monkeypatch.undo()
    for named in (later, quick_path):
        assert "use the ddp_repro that wrote it" in training.refuses(named, "another version .schema 2").hint


def test_what_is_no_checkpoint_is_refused(quick_path: Path) -> None:
    training = Training()
    training.refuses(quick_path / "nowhere", "is no folder")
    training.refuses(quick_path, "holds no checkpoint")
    foreign = quick_path / "step-00000009"
    foreign.mkdir()
    training.refuses(foreign, "never finished")
    (foreign / MANIFEST).write_text(json.dumps({"schema": 1, "epoch": 3}))
    training.refuses(foreign, "no checkpoint of ddp_repro")
    (foreign / MANIFEST).write_text("[1]")
    training.refuses(foreign, "no JSON object")


def test_an_unfinished_one_is_not_seen_and_goes_with_the_next(quick_path: Path) -> None:
    training = Training()
    training.save(quick_path, 1)
    shutil.copytree(quick_path / "step-00000001", quick_path / ".step-00000002.partial-0123abcd")
    assert training.load(quick_path).progress.step == 1
    training.save(quick_path, 3)
    assert sorted(path.name for path in quick_path.iterdir()) == ["step-00000001", "step-00000003"]


def tied(training: Training) -> None:
    training.model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    training.model[1].weight = training.model[0].weight
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)


def untied(training: Training) -> None:
    training.model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)


def other_optimizer(training: Training) -> None:
    training.optimizer = torch.optim.AdamW(training.model.parameters())


def fewer_stepped(training: Training) -> None:
    training.optimizer = torch.optim.Adam(list(training.model.parameters())[:2])


def other_groups(training: Training) -> None:
    training.optimizer = torch.optim.Adam([{"params": [one]} for one in training.model.parameters()])


def another_key(training: Training) -> None:
    training.optimizer.param_groups[0]["warmup"] = 3


def other_dtype(training: Training) -> None:
    training.model[0].double()  # type: ignore[index]


def other_buffer(training: Training) -> None:
    training.model[1].register_buffer("seen", torch.zeros(1), persistent=False)  # type: ignore[index]


def without_values(training: Training) -> None:
    training.model.to("meta")
    training.optimizer = torch.optim.Adam(training.model.parameters())


def nothing(training: Training) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (nothing, other_dtype, r"0.weight is float64\[3,2\] here and float32\[3,2\] in the checkpoint"),
        (nothing, without_values, "0.weight is on the meta device"),
        (nothing, other_buffer, "the checkpoint has no 1.seen of the model"),
        (other_buffer, nothing, "model has no 1.seen"),
        (nothing, other_optimizer, "optimizer is a AdamW here and a Adam in the checkpoint"),
        (nothing, fewer_stepped, "optimizer stepped 1.bias in the checkpoint and not here"),
        (fewer_stepped, nothing, "optimizer steps 1.bias here and not in the checkpoint"),
        (nothing, other_groups, "groups of the optimizer hold other parameters"),
        (nothing, another_key, "no warmup of group 0"),
        (tied, untied, "1.weight is tied to 0.weight in the checkpoint and not in the model"),
        (untied, tied, "1.weight is tied to 0.weight in the model and not in the checkpoint"),
    ],
)
def test_what_does_not_fit_is_named(
    quick_path: Path, before: Callable[[Training], None], after: Callable[[Training], None], told: str
) -> None:
    training, other = Training(), Training(seed=1)
    before(training)
    training.save(quick_path)
    after(other)
    other.refuses(quick_path, told)


def test_a_parameter_that_is_frozen_on_one_side_is_told(quick_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training = Training()
    training.save(quick_path)
    next(training.model.parameters()).requires_grad_(False)
    training.load(quick_path)
    assert "0.weight is frozen here alone" in caplog.text


def test_another_shape_is_named(quick_path: Path) -> None:
    Training().save(quick_path)
    Training(width=4).refuses(quick_path, r"0.weight is float32\[4,2\] here and float32\[3,2\] in the checkpoint")


def test_what_is_on_one_side_only_is_named_and_can_be_allowed(quick_path: Path) -> None:
    training = Training()
    training.extra = {"ema": nn.Linear(1, 1), "best": 3}
    training.save(quick_path / "a")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.5)
    training.refuses(quick_path / "a", r"a scheduler is given .*allow=\['scheduler'\]", scheduler=scheduler)
    training.refuses(quick_path / "a", r"has a extra.ema and none is given", extra={})
    training.refuses(quick_path / "a", r"extra ema was saved as a module", extra={"ema": torch.Generator()})
    allow = ["scheduler", "extra.ema", "optimizer.group0.initial_lr"]
    restored = training.load(quick_path / "a", extra=None, scheduler=scheduler, allow=allow)
    assert restored.values == {"best": 3}
    assert set(restored.not_exact) == set(allow)


def test_another_identity_is_refused_by_its_fields(quick_path: Path) -> None:
    training = Training()
    training.save(quick_path, identity=IDENTITY)
    assert training.load(quick_path, identity={**IDENTITY, "provenance": {"host": "b"}}).not_exact == ()
    other = {**IDENTITY, "num_workers": 4, "software": {"torch": "3"}}
    error = training.refuses(quick_path, r"num_workers \(2 saved, 4 here\)", identity=other)
    assert "software.torch" in str(error)
    assert "allow=['software.torch', 'num_workers']" in error.hint
    training.refuses(quick_path, "num_workers", identity=other, allow=["software"])
    restored = training.load(quick_path, identity=other, allow=["software.*", "num_workers"])
    assert set(restored.not_exact) == {"software.torch", "num_workers"}
    training.refuses(quick_path, r"experiment.config.lr \(0.1 saved, none here\)")
    training.refuses(quick_path, "num_workers", identity={**IDENTITY, "num_workers": 2.0})
    assert "num_workers" in training.load(quick_path, allow=["*"]).not_exact


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(quick_path: Path) -> None:
    training = Training()
    sparse = torch.eye(2).to_sparse()
    for extra, told in (({"a": object()}, "extra/a is a object"), ({"a": {"b": sparse}}, "extra/a.b is a sparse")):
        training.extra = extra
        with pytest.raises(ReproError, match=told):
            training.save(quick_path)
    training.extra = {}
    stranger = torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=0.1)
    with pytest.raises(ReproError, match=r"shape \[3\] that no model holds"):
        save_checkpoint(
            quick_path, model=training.model, optimizer=stranger, progress=Progress(step=0, epoch=0, position=0)
        )
    with pytest.raises(ReproError, match=r"identity\.a is a object"):
        training.save(quick_path, identity={"a": object()})
    assert not list(quick_path.iterdir())
    with pytest.raises(ReproError, match=r"progress\.step=-1"):
        Progress(step=-1, epoch=0, position=0)
    with pytest.raises(ReproError, match=r"progress\.epoch=True"):
        Progress(step=1, epoch=True, position=0)


def test_a_rank_without_its_process_group_is_refused(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ReproError, match="no process group"):
        Training().save(quick_path)
