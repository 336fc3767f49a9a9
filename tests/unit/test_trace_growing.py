"""A trace that is read while it is written, in whatever pieces it comes."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_repro.trace.growing import GrowingTrace
from ddp_repro.trace.observations import Trace
from ddp_repro.trace.reader import read_trace
from ddp_repro.trace.schema import TraceMeta
from tests.unit.synthetic import Script, ranks, write_trace

META = TraceMeta(identity="0", launch=1, rank=2, world_size=3, capture="step", launch_id="id")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "rank-2.arrows"
    write_trace(path, META, ranks(Script(world_size=3, workers=2))[2], "finished")
    return path


def read_in_pieces(data: bytes, ends: list[int], path: Path) -> tuple[GrowingTrace, list[Trace]]:
    growing, parts = GrowingTrace(path), []
    for end in [*sorted(ends), len(data)]:
        path.write_bytes(data[:end])
        added = growing.read()
        parts += [] if added is None else [added]
    return growing, parts


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 30))
def test_all_rows_come_once_whatever_the_pieces(written: Path, random: random.Random, pieces: int) -> None:
    data = written.read_bytes()
    growing, parts = read_in_pieces(
        data, [random.randrange(len(data)) for _ in range(pieces)], written.with_name("copy")
    )
    found, expected = Trace.joined(parts), read_trace(written)
    assert len(found) == len(expected) + 1, "with the closing row"
    assert growing.meta == META
    assert (found.seq[:-1] == expected.seq).all()
    for row in (0, len(expected) // 2, len(expected) - 1):
        assert found.observation(row) == expected.observation(row)
    for column in ("step", "phase", "name", "spec", "digest", "valid"):
        assert (getattr(found, column)[:-1] == getattr(expected, column)).all()
    assert found.names[: len(expected.names)] == expected.names


def test_nothing_is_read_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    growing = GrowingTrace(tmp_path / "rank-0.arrows")
    assert growing.read() is None
    (tmp_path / "rank-0.arrows").touch()
    assert growing.read() is None
    assert growing.meta is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_behind_a_damaged_byte_is_read(written: Path, data: st.DataObject) -> None:
    whole = written.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 9))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    path = written.with_name("damaged")
    _, parts = read_in_pieces(bytes(damaged), [], path)
    rows = sum(map(len, parts))
    path.write_bytes(whole[:at])
    intact = GrowingTrace(path).read()
    assert rows == (0 if intact is None else len(intact))
