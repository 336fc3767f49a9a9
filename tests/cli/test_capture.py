"""Observing moves no bit: with and without it, training ends in the same parameters at every world size."""

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.layout import RunFolder
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
