"""The file of a golden: whatever happens to its bytes, it is what was written, or it is refused."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_repro.errors import ReproError
from ddp_repro.judge.golden import Keeping, golden_of
from ddp_repro.trace.golden import Golden, golden_bytes, read_golden
from ddp_repro.trace.golden_folder import GoldenFolder, write_golden
from tests.unit.synthetic import Script, identity, launch_of, ranks, write_launch

SMALL = ranks(Script(world_size=2, epochs=1, length=16, evaluate=False))


def golden(level: str = "step") -> Golden:
    return golden_of(launch_of(SMALL), Keeping(level=level, ignore=("b", "a", "b"), observer="o"))


WHOLE = golden_bytes(golden())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden") / "g.arrows"


@pytest.mark.parametrize("level", ["step", "full"])
def test_it_reads_back_as_it_was_written(file: Path, level: str) -> None:
    made = golden(level)
    file.write_bytes(golden_bytes(made))
    read = read_golden(file)
    assert (read.level, read.capture, read.observer, read.code) == (made.level, made.capture, made.observer, made.code)
    assert read.ignore == (("a", "b") if level == "step" else ())
    assert (read.key, read.identities, read.finals) == (made.key, made.identities, made.finals)
    assert read.traces.keys() == made.traces.keys()
    for rank, trace in made.traces.items():
        own = read.traces[rank]
        told = [own.observation(row) for row in range(len(own))]
        assert told == [trace.observation(row) for row in range(len(trace))]
    assert golden_bytes(read) == golden_bytes(made)


def test_any_arrow_tool_reads_it() -> None:
    table = pa.ipc.open_stream(WHOLE).read_all()
    assert table.column_names == ["rank", "step", "phase", "name", "spec", "digest", "value"]
    assert set(table.column("rank").to_pylist()) == {0, 1}
    assert json.loads(table.schema.metadata[b"golden"])["level"] == "step"


@settings(max_examples=300)
@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_one_flipped_bit_is_found(file: Path, at: int, bit: int) -> None:
    file.write_bytes(WHOLE[:at] + bytes([WHOLE[at] ^ 1 << bit]) + WHOLE[at + 1 :])
    with pytest.raises(ReproError):
        read_golden(file)


@settings(max_examples=200)
@given(at=st.integers(0, len(WHOLE) - 1))
def test_a_cut_is_found(file: Path, at: int) -> None:
    file.write_bytes(WHOLE[:at])
    with pytest.raises(ReproError):
        read_golden(file)


@given(st.binary(max_size=300), st.booleans())
def test_anything_else_is_refused(file: Path, content: bytes, is_behind: bool) -> None:
    file.write_bytes(WHOLE + b"x" + content if is_behind else content)
    with pytest.raises(ReproError):
        read_golden(file)


def test_a_trace_is_no_golden(tmp_path: Path) -> None:
    written = write_launch(tmp_path, 0, SMALL)
    with pytest.raises(ReproError, match="no golden"):
        read_golden(written.path / "rank-0.arrows")


def test_ranks_of_several_identities_have_a_key_of_their_own() -> None:
    launch = launch_of(SMALL)
    launch.identities[1] = identity(experiment__world_size=2, hardware__cpu="another")
    made = golden_of(launch, Keeping(level="step", ignore=(), observer="o"))
    assert made.key not in (golden().key, launch.identities[1]["digest"])


def test_a_golden_is_not_written_over_by_chance(tmp_path: Path) -> None:
    file = GoldenFolder(tmp_path / "new").file("a" * 64)
    write_golden(file, golden(), over=False)
    with pytest.raises(ReproError, match="another process wrote one meanwhile"):
        write_golden(file, golden("full"), over=False)
    assert file.read_bytes() == WHOLE
    write_golden(file, golden("full"), over=True)
    assert read_golden(file).level == "full"
    assert [path.name for path in file.parent.iterdir()] == [f"{'a' * 16}.arrows"]


def test_where_no_file_can_be_made_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReproError, match="cannot write"):
        write_golden(tmp_path / "file" / "a.arrows", golden(), over=False)


def test_what_was_obtained_and_what_is_being_written_are_no_goldens(tmp_path: Path) -> None:
    folder = GoldenFolder(tmp_path)
    file = folder.file("b" * 64)
    for other in (
        folder.obtained(file),
        tmp_path / f".{file.name}.1.tmp",
        tmp_path / ".c.arrows",
        tmp_path / "notes.md",
    ):
        other.write_bytes(WHOLE)
    assert folder.files() == []
    file.write_bytes(WHOLE)
    assert folder.files() == [file]
    assert list(folder.entries().goldens) == [file]


def test_a_golden_is_small(tmp_path: Path) -> None:
    launch = launch_of(ranks(Script(world_size=3, epochs=4, length=300, evaluate=False)))
    made = golden_of(launch, Keeping(level="step", ignore=(), observer="o"))
    rows = sum(len(trace) for trace in made.traces.values())
    # Before the first step, in each step data, generators, loss, gradients (3), parameters, buffers (2) and optimizer,
    # and the end of the data.
    assert rows == 3 * (1 + 100 * 10 + 1)
    assert len(golden_bytes(made)) < 24 * rows
    assert np.unique([len(trace) for trace in made.traces.values()]).size == 1
