"""Runs at the same time, on one machine, below one folder: neither their ports nor their folders meet."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ddp_repro.run.ports import reserved_port
from tests.command import TINY, run
from tests.prefork import client

pytestmark = pytest.mark.worlds


def test_two_checks_below_one_folder(tmp_path: Path) -> None:
    client.server("0", ())
    words = ["nproc=2", "output.root=runs", *TINY]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: run("check", *words, cwd=tmp_path), range(2)))
    assert [done.code for done in both] == [0, 0], both
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["0", "1"]
    for folder in (tmp_path / "runs").iterdir():
        names = {file.name for file in folder.iterdir()}
        assert {"verdict.json", "launch-0", "launch-1"} <= names
    told = sorted(line for done in both for line in done.stdout.splitlines() if line.startswith("files"))
    assert ["runs/0/" in told[0], "runs/1/" in told[1]] == [True, True], told


def test_ports_that_are_held_are_all_different() -> None:
    with ExitStack() as held:
        ports = [held.enter_context(reserved_port()) for _ in range(200)]
        assert len(set(ports)) == 200
