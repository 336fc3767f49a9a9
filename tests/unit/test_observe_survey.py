"""Operators run again on the same inputs: what differs and what has no deterministic form is told, and no bit moves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.survey import SurveyPlan
from ddp_repro.observe.watch import watch
from ddp_repro.observe.window import Window

HERE = Path(__file__).name


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(64, 8))
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(8, 1)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        rows = self.table[index]
        return self.out(self.drop(rows))  # type: ignore[no-any-return]


LOOK_UP = f"{HERE}:{Path(__file__).read_text().splitlines().index('        rows = self.table[index]') + 1}"


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def train(steps: int = 4, count: int = 40_000, *, puts: bool = False) -> dict[str, Any]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    for _ in range(steps):
        index = torch.randint(64, (count,))
        loss = net(index).square().sum()
        if puts:
            loss = loss + torch.zeros(3).put_(torch.tensor([0, 1]), torch.ones(2)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.tolist() for name, value in net.state_dict().items()}


def surveyed(file: Path, **kwargs: Any) -> dict[str, Any]:
    recorder = Recorder(None, pending=True)
    with watch(recorder, "op", window=Window(survey=SurveyPlan(file=file, again=2))):
        train(**kwargs)
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def of(told: dict[str, Any], operator: str) -> Any:
    (entry,) = [one for one in told["entries"] if one["operator"] == operator]
    return entry


def test_a_race_in_the_backward_is_seen_at_its_line(tmp_path: Path) -> None:
    told = surveyed(tmp_path / "a.json")
    assert (told["steps"], told["deterministic"]) == (4, [False])
    entry = of(told, "aten::index_put")
    assert (entry["source"].rpartition("/")[2], entry["part"]) == (LOOK_UP, "backward")
    assert entry["node"] == "IndexBackward0"
    assert entry["module"] == "Net"
    assert (entry["calls"], entry["compared"]) == (4, 4)
    assert entry["differed"] >= 1
    others = [one["operator"] for one in told["entries"] if one["differed"] and one is not entry]
    assert others == []


def test_deterministic_algorithms_cure_it_without_a_word(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    told = surveyed(tmp_path / "a.json")
    entry = of(told, "aten::index_put")
    assert (entry["differed"], entry["said"]) == (0, "")
    assert entry["compared"] == 4
    assert told["deterministic"] == [True]
    assert not [one for one in told["entries"] if one["said"]]


def test_what_has_no_deterministic_form_is_told_in_torch_s_words(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="put_"):
        told = surveyed(tmp_path / "a.json", count=10, puts=True)
    (entry,) = [one for one in told["entries"] if one["said"]]
    assert entry["operator"] == "aten::put_"
    assert "does not have a deterministic implementation" in entry["said"]
    assert entry["differed"] == 0
    assert torch.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.parametrize("is_on", [False, True])
def test_no_bit_moves(is_on: bool, tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(is_on, warn_only=True)
    plain = train(3, 50)
    recorder = Recorder(None, pending=True)
    with watch(recorder, "op", window=Window(survey=SurveyPlan(file=tmp_path / "a.json", again=3))):
        assert train(3, 50) == plain
    told = json.loads((tmp_path / "a.json").read_text())
    (drawn,) = [one for one in told["entries"] if "dropout" in one["operator"] or "bernoulli" in one["operator"]]
    assert (drawn["compared"], drawn["differed"]) == (3, 0)
    assert {one["part"] for one in told["entries"]} == {"forward", "backward", "optimizer"}
