"""A script held against its golden, as a person does it: made, matched, changed, accepted, stale, refused in CI."""

from pathlib import Path
from typing import Any

import pytest

from tests.command import Done, run

pytestmark = pytest.mark.worlds

SCRIPT = """
import random
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
model = DistributedDataParallel(model)
torch.manual_seed(100 + rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    x, y = torch.randn(6, 8), torch.randn(6, 2)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    CHANGE
    optimizer.step()
"""
CLIPPED = "if step == 2: nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
HASTY = "if step == 3: optimizer.param_groups[0]['lr'] = 0.05"


class Guarded:
    """A folder with a script and its goldens; numpy is never seeded there, and nothing draws from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0
        self.write("pass")

    def write(self, change: str) -> None:
        (self.folder / "train.py").write_text(SCRIPT.replace("CHANGE", change))

    def __call__(self, *overrides: str, ci: str = "", path: str = "goldens") -> Done:
        self.runs += 1
        script = ("workload=script", "workload.path=train.py", "nproc=3", f"golden.path={path}")
        named = f"output.dir=run-{self.runs}"
        return run("check", *script, *overrides, named, cwd=self.folder, extra={"CI": ci})

    def goldens(self, path: str = "goldens") -> list[Path]:
        return sorted((self.folder / path).iterdir())


def golden(done: Done) -> dict[str, Any]:
    assert done.verdict is not None, done.stdout + done.stderr
    assert done.last_line == done.verdict["verdict"], done.stdout + done.stderr
    told: dict[str, Any] = done.verdict["golden"]
    return told


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    created = made()
    assert (created.code, golden(created)["state"]) == (2, "created"), created.stdout + created.stderr
    assert "so this launch was kept as one" in " ".join(created.stdout.split())
    assert [file.stem for file in made.goldens()] == [created.verdict["identity"]["digest"][:16]]  # type: ignore[index]
    return made


def test_what_changed_is_placed_and_accepted(guarded: Guarded) -> None:
    matched = guarded()
    assert (matched.code, golden(matched)["state"]) == (0, "matched"), matched.stdout + matched.stderr
    assert len(matched.verdict["launches"]) == 1  # type: ignore[index]
    (file,) = guarded.goldens()
    before = file.read_bytes()

    guarded.write(CLIPPED)
    changed = guarded()
    told = golden(changed)
    assert (changed.code, told["state"]) == (1, "changed"), changed.stdout + changed.stderr
    first = changed.verdict["findings"][0]  # type: ignore[index]
    assert (first["witness"], first["step"], first["phase"]) == ("golden", 2, "grad_step")
    assert (first["cause"], first["ranks"]) == ("gradient-processing", [0, 1, 2])
    assert "torchrun -m ddp_repro.check" in told["accept"]
    assert told["accept"] in " ".join(changed.stdout.split())
    page = (guarded.folder / f"run-{guarded.runs}" / "report.html").read_text()
    assert 'id="golden"' in page
    assert "golden.accept=true" in page
    assert file.read_bytes() == before
    assert [path.name for path in guarded.goldens()] == [file.name, f"{file.stem}.obtained.arrows"]

    refused = guarded("golden.accept=true", ci="true")
    refused.assert_short_refusal()
    assert "refused in CI" in refused.stderr
    assert not (guarded.folder / f"run-{guarded.runs}").exists()
    assert file.read_bytes() == before

    accepted = guarded("golden.accept=true")
    assert (accepted.code, golden(accepted)["state"]) == (2, "accepted"), accepted.stdout + accepted.stderr
    assert file.read_bytes() != before
    guarded.write(CLIPPED + "\n    pass  # another text of the same code")
    matched = guarded(ci="true")
    assert (matched.code, golden(matched)["state"]) == (0, "matched"), matched.stdout + matched.stderr
    assert golden(matched)["code"]["golden"] != golden(matched)["code"]["now"]
    guarded.write("pass")


def test_another_world_size_is_stale_and_lies_beside(guarded: Guarded) -> None:
    stale = guarded("nproc=2")
    assert (stale.code, golden(stale)["state"]) == (2, "stale"), stale.stdout + stale.stderr
    assert "world size 3 against 2" in " ".join(stale.stdout.split())
    assert golden(stale)["moved"][0] == {"field": "experiment.world_size", "values": [3, 2], "allowed": False}
    assert not stale.verdict["findings"]  # type: ignore[index]


@pytest.mark.full
def test_two_goldens_lie_side_by_side(guarded: Guarded) -> None:
    accepted = guarded("nproc=2", "golden.accept=true", path="both")
    assert (accepted.code, golden(accepted)["state"]) == (2, "created")
    accepted = guarded("golden.accept=true", path="both")
    assert (accepted.code, golden(accepted)["state"]) == (2, "accepted"), accepted.stdout
    assert len(guarded.goldens("both")) == 2
    for overrides in ((), ("nproc=2",)):
        done = guarded(*overrides, path="both")
        assert (done.code, golden(done)["state"]) == (0, "matched"), done.stdout + done.stderr
        assert len(golden(done)["unused"]) == 1
        assert "unused: 1 other golden" in done.stdout


@pytest.mark.full
def test_in_full_the_name_and_the_setting_are_told(guarded: Guarded) -> None:
    created = guarded("golden.level=full", path="whole")
    assert (created.code, golden(created)["level"]) == (2, "full")
    matched = guarded(path="whole")
    assert (matched.code, golden(matched)["state"]) == (0, "matched"), matched.stdout + matched.stderr
    guarded.write(HASTY)
    changed = guarded(path="whole", ci="1")
    guarded.write("pass")
    first = changed.verdict["findings"][0]  # type: ignore[index]
    assert (changed.code, first["step"], first["cause"]) == (1, 3, "hyperparameters"), changed.stdout
    assert "group0.lr of the optimizer is another one (0.1 against 0.05)" in first["message"]
    assert first["name"] == "0.weight"
    assert len(guarded.goldens("whole")) == 1, "in CI nothing is written beside it"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (('twins=[[],["threads=2"]]',), "twins cannot be combined"),
        (("capture=off",), "would hold nothing"),
        (("golden.path=train.py",), "is a file"),
        (("golden.path=train.py/x",), "no folder that can be read"),
        (("golden.path=null", "golden.accept=true"), "no golden is named"),
        (("golden.path=null", "golden.level=full"), "no golden is named"),
        (("golden.level=phase",), "golden.level"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_launched(
    guarded: Guarded, overrides: tuple[str, ...], told: str
) -> None:
    done = guarded(*overrides)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not (guarded.folder / f"run-{guarded.runs}").exists()


@pytest.mark.full
def test_without_a_golden_none_is_told(guarded: Guarded) -> None:
    missing = guarded(path="none", ci="true")
    assert (missing.code, golden(missing)["state"]) == (2, "missing")
    assert not (guarded.folder / "none").exists()
    assert "none is made in CI (CI=true)" in " ".join(missing.stdout.split())


@pytest.mark.full
def test_a_failed_launch_and_a_broken_invariant_make_none(guarded: Guarded) -> None:
    guarded.write("if step == 2 and rank == 1: raise SystemExit(3)")
    failed = guarded(path="failed")
    assert (failed.code, golden(failed)["state"]) == (2, "unjudged"), failed.stdout + failed.stderr
    guarded.write("if step == 2 and rank == 1: model.module[0].weight.data.add_(1)")
    broken = guarded(path="failed")
    guarded.write("pass")
    assert (broken.code, golden(broken)["state"]) == (1, "missing"), broken.stdout + broken.stderr
    assert broken.verdict["findings"][0]["witness"] == "ranks"  # type: ignore[index]
    assert not (guarded.folder / "failed").exists()
