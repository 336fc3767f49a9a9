"""A baseline is read back as it was written, refused where it is damaged, and held to its settings."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddp_repro.errors import ReproError
from ddp_repro.judge.baseline import Baseline, differing, flat, read_baseline, write_baseline

KEPT = Baseline(
    metric="acc",
    seeds=[1, 2, 3],
    values=[0.1, 0.1 + 0.2, 1 / 3],
    settings={"train.epochs": 2, "workload.lr": 0.1},
    stack={"software.torch": "2.13"},
)


def test_a_baseline_is_read_back_in_bits_from_its_file_or_its_run(tmp_path: Path) -> None:
    write_baseline(tmp_path / "baseline.json", KEPT)
    assert read_baseline(tmp_path) == KEPT
    assert read_baseline(tmp_path / "baseline.json") == KEPT


@pytest.mark.parametrize(
    "changes",
    [
        {"values": [0.1, 0.2]},
        {"values": [0.1, "x", 0.3]},
        {"values": [0.1, 0.2, float("nan")]},
        {"seeds": []},
        {"more": 1},
        {"schema": "baseline/2"},
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    write_baseline(tmp_path / "baseline.json", KEPT)
    content = json.loads((tmp_path / "baseline.json").read_text())
    (tmp_path / "baseline.json").write_text(json.dumps({**content, **changes}))
    with pytest.raises(ReproError, match=r"baseline\.json"):
        read_baseline(tmp_path)


def test_other_settings_bar_a_judgement_and_another_stack_is_told() -> None:
    assert differing(KEPT, KEPT, []) == ([], [])
    other = replace(KEPT, settings={"train.epochs": 3, "workload.lr": 0.1}, stack={"software.torch": "2.14"})
    problems, notes = differing(KEPT, other, [])
    assert len(problems) == 1
    assert "measured with other settings: train.epochs 2 then, 3 now" in problems[0]
    assert problems[0].endswith("name those that may differ: compare.allow=[train.epochs]")
    assert notes == ["since the baseline: software.torch '2.13' then, '2.14' now"]
    for allow in (["train.epochs"], ["train"], ["train.*"]):
        problems, notes = differing(KEPT, other, allow)
        assert problems == []
        assert "train.epochs 2 then, 3 now" in notes[0]
    assert "metric is another one" in differing(KEPT, replace(KEPT, metric="loss"), [])[0][0]


def test_settings_are_flat() -> None:
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {"a.b": 1, "a.c.d": [2], "e": None}
