import random
import sys
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.errors import ReproError
from ddp_repro.run import seeding
from ddp_repro.run.data import make_loader
from ddp_repro.workload import digits, text

GRAIN = 32_768  # elements from which torch splits an indexing backward among threads


def test_the_text_is_the_language_reference() -> None:
    content = text.load()
    assert content.dtype == torch.uint8
    assert len(content) > 300_000
    assert b"Boolean operations" in bytes(content.numpy().data)
    assert torch.equal(content, text.load())


def test_a_python_without_the_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ReproError, match=r"ships without pydoc_data\.topics") as raised:
        text.build("tiny")
    assert "workload=digits" in raised.value.hint


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_every_size_is_past_where_torch_splits_the_work(size: str) -> None:
    options = text.PRESETS[size]
    assert options.context**2 * options.heads >= 2 * GRAIN


def test_base_has_ten_million_parameters() -> None:
    assert 9_500_000 < sum(p.numel() for p in text.build("base").model.parameters()) < 10_500_000


def test_windows_follow_each_other_and_predict_the_next_byte() -> None:
    content = text.load()
    data = text.Windows(content, 16)
    inputs, targets = data[3]
    assert inputs.tolist() == content[48:64].tolist()
    assert targets.tolist() == content[49:65].tolist()
    assert data[len(data) - 1][1].shape == (16,)


def test_augmented_windows_start_anywhere_in_their_own_and_stay_inside() -> None:
    content = text.load()[: 128 * 4]
    data = text.AugmentedWindows(content, text.PRESETS["tiny"])
    assert len(data) == 3
    starts = set()
    for _ in range(200):
        inputs, targets = data[2]
        assert (inputs.shape, targets.shape) == ((128,), (128,))
        found = [start for start in range(256, 384) if torch.equal(content[start + 1 : start + 129].long(), targets)]
        assert len(found) == 1
        starts.add(found[0])
        replaced = (inputs[1:] != targets[:-1]).sum()
        assert replaced < 20
    assert len(starts) > 50
    random.seed(1)
    torch.manual_seed(1)
    one = data[1]
    random.seed(1)
    torch.manual_seed(2)
    assert torch.equal(data[1][1], one[1])
    assert not torch.equal(data[1][0], one[0])


def test_no_position_sees_the_future() -> None:
    seeding.seed_model(0)
    model = text.build("tiny", dropout=0.0).model
    inputs = torch.randint(256, (1, 32))
    changed = inputs.clone()
    changed[0, 20] = (changed[0, 20] + 1) % 256
    before, after = model(inputs), model(changed)
    assert torch.equal(before[0, :20], after[0, :20])
    assert not torch.equal(before[0, 20:], after[0, 20:])


def test_the_position_bias_reaches_the_result() -> None:
    seeding.seed_model(0)
    workload = text.build("tiny")
    batch = next(iter(make_loader(workload.train_data, seed=0, batch_size=2)))
    workload.loss(workload.model, batch).backward()  # type: ignore[no-untyped-call]
    table: Any = workload.model.get_parameter("blocks.0.attention.table")
    assert table.grad.abs().sum(dim=1).gt(0).all(), "a row of the table gets no gradient"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [({"size": "huge"}, "size=huge"), ({"width": 30}, "width=30 does not divide"), ({"depth": 0}, "depth=0")],
)
def test_wrong_options(overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(ReproError, match=said) as raised:
        text.build(**overrides)
    assert raised.value.hint


@pytest.mark.parametrize(("name", "options"), [("digits", digits.PRESETS["tiny"]), ("text", text.PRESETS["tiny"])])
def test_the_configuration_names_every_option(name: str, options: Any) -> None:
    node = OmegaConf.load(CONF_DIR / "workload" / f"{name}.yaml")
    keys = list(node.workload if name == "text" else node)
    assert keys[:2] == ["_target_", "size"]
    assert sorted(keys[2:]) == sorted(field for field in type(options).__dataclass_fields__)
