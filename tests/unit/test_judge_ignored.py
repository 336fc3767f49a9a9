from pathlib import Path

import pytest

from ddp_repro.errors import Verdict
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.ignored import pattern
from ddp_repro.judge.judgement import Rules, judge
from tests.unit.synthetic import Ranks, Script, changed, ranks, write_launch

CLEAN = ranks(Script(world_size=3))
BUFFERS = {**CLEAN, 1: changed(CLEAN[1], step=2, phase="buffer")}


def judged(root: Path, *written: Ranks, ignore: tuple[str, ...]) -> Judgement:
    return judge([write_launch(root, at, one) for at, one in enumerate(written)], Rules(ignore=ignore))


@pytest.mark.parametrize(
    ("text", "phase", "name", "covers"),
    [
        ("*.running_mean", "buffer", "norm.1.running_mean", True),
        ("*.running_mean", "buffer", "norm.running_mean.x", False),
        ("*.running_mean", "buffer", "running_mean", False),
        ("conv.?ias", "param", "conv.bias", True),
        ("buffer:*", "buffer", "norm.mean", True),
        ("buffer:*", "param", "norm.mean", False),
        ("DistributedSampler[0].*", "data", "DistributedSampler[0].index", True),
        ("DistributedSampler[0].*", "data", "DistributedSampler0.index", False),
        ("rng:cuda:0", "rng", "cuda:0", True),
        ("cuda:*", "rng", "cuda:0", True),
        ("a.b", "param", "axb", False),
        ("*", "param", "two\nlines", True),
    ],
)
def test_globs(text: str, phase: str, name: str, covers: bool) -> None:
    assert pattern(text).covers(phase, name) is covers


def test_neither_launches_nor_ranks_are_compared_in_what_is_ignored(tmp_path: Path) -> None:
    assert judged(tmp_path / "all", CLEAN, BUFFERS, ignore=()).verdict is Verdict.DIVERGED
    found = judged(tmp_path / "ignored", CLEAN, BUFFERS, ignore=("norm.*",))
    assert (found.verdict, found.findings, found.classes) == (Verdict.REPRODUCIBLE, [], [[0, 1]])
    assert found.observations == 2 * sum(map(len, CLEAN.values()))


def test_how_much_was_ignored_is_told(tmp_path: Path) -> None:
    rows = 2 * sum(row.name == "norm.mean" and row.phase == "buffer" for rows in CLEAN.values() for row in rows)
    found = judged(tmp_path, CLEAN, BUFFERS, ignore=("buffer:norm.*", "nobody"))
    assert f"ignored as judge.ignore says, buffer:norm.*: {rows:,} rows" in found.notes
    assert "judge.ignore names nobody, which no observation has" in found.notes


def test_other_differences_are_still_found(tmp_path: Path) -> None:
    planted = {**BUFFERS, 2: changed(CLEAN[2], step=3, phase="param", name="conv.bias")}
    found = judged(tmp_path, CLEAN, planted, ignore=("norm.*",))
    assert found.verdict is Verdict.DIVERGED
    assert {(one.witness, one.step, one.name) for one in found.findings} == {
        ("launches", 3, "conv.bias"),
        ("ranks", 3, "conv.bias"),
    }


@pytest.mark.parametrize("ignore", [("*",), ("loss:*", "grad*:*", "*.weight", "*.bias", "loss", "bucket_layout")])
def test_where_nothing_is_left_nothing_is_concluded(ignore: tuple[str, ...], tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, CLEAN, ignore=ignore)
    assert found.verdict is Verdict.NOT_JUDGED
    assert "that judge.ignore leaves" in found.problems[0]


def test_phases_that_are_ignored_whole_are_said_not_to_be_judged(tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, CLEAN, ignore=("param:*",))
    assert any("never observed, so not judged: param" in note for note in found.notes)
