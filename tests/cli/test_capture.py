"""Observing moves no bit: with and without it, training ends in the same parameters at every world size."""

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import read_trace
from tests.command import TINY, run

pytestmark = pytest.mark.worlds


@pytest.mark.parametrize("world_size", [1, 3, 4])  # 2 is among the recorded runs of test_compare
def test_the_observer_moves_no_bit(world_size: int, tmp_path: Path) -> None:
    finals: dict[str, list[Any]] = {}
    for capture in ("step", "off"):
        done = run("record", *TINY, f"nproc={world_size}", f"capture={capture}", f"output.dir={capture}", cwd=tmp_path)
        assert done.code == 0, done.stdout + done.stderr
        launch = RunFolder(tmp_path / capture).launch(0)
        finals[capture] = [json.loads(launch.final(rank).read_text())["param"] for rank in range(world_size)]
    assert finals["step"] == finals["off"]
    assert len({json.dumps(final) for final in finals["step"]}) == 1


@pytest.mark.parametrize("workload", ["text", "digits"])
def test_no_level_of_capture_moves_a_bit(workload: str, tmp_path: Path) -> None:
    levels = (["capture=off"], ["capture=module"], ["capture=op"], ["capture=op", "capture.steps=[1,2]"])
    finals = []
    for number, level in enumerate(levels):
        done = run("record", *TINY, f"workload={workload}", *level, "nproc=3", f"output.dir={number}", cwd=tmp_path)
        assert done.code == 0, done.stdout + done.stderr
        launch = RunFolder(tmp_path / str(number)).launch(0)
        finals.append([json.loads(launch.final(rank).read_text()) for rank in range(3)])
        if number == 3:
            trace = read_trace(launch.trace(0))
            told = {trace.phases[code] for code in trace.phase[trace.step == 1]}
            assert {"forward", "op", "collective"} <= told
            assert not {trace.phases[code] for code in trace.phase[trace.step == 3]} & {"forward", "op", "collective"}
    assert all(final == finals[0] for final in finals)


def test_levels_of_capture_are_twins(tmp_path: Path) -> None:
    twins = '[["capture=step"],["capture=op","capture.steps=[1,1]"],["capture=off"]]'
    done = run("check", *TINY, "nproc=3", f"twins={twins}", "output.dir=run", cwd=tmp_path)
    assert done.code == 0, done.stdout + done.stderr
    assert any(
        "of modules, which not both were observed in" in note and "of operators" in note
        for note in (done.verdict or {})["notes"]
    )
