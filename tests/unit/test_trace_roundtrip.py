"""What is appended is what is read, by us and by any Arrow tool."""

import math
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from ddp_repro.errors import ReproError
from ddp_repro.trace import schema
from ddp_repro.trace.reader import Observation, Trace, read_trace
from ddp_repro.trace.schema import PHASES, TraceMeta
from ddp_repro.trace.writer import TraceWriter

META = TraceMeta(identity="5e" * 16, launch=3, rank=1, world_size=4, capture="step")
Row = tuple[int, str, str, str, bytes, float | None]

labels = st.text(st.characters(codec="utf-8"), max_size=12)
rows = st.tuples(
    st.integers(-1, 2**31 - 1),
    st.sampled_from(PHASES),
    labels,
    labels,
    st.binary(min_size=16, max_size=16),
    st.none() | st.floats(allow_nan=True),
)


def write(path: Path, batches: list[list[Row]], reason: str = "finished", meta: TraceMeta = META) -> Path:
    path.unlink(missing_ok=True)
    writer = TraceWriter(path, meta)
    for batch in batches:
        for row in batch:
            writer.append(*row)
        writer.flush()
    writer.close(reason)
    return path


def rows_in(trace: Trace) -> list[Observation]:
    return [trace.observation(row) for row in range(len(trace))]


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("d", value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(rows, max_size=6), max_size=6), reason=labels)
def test_reads_back_what_was_appended(tmp_path: Path, batches: list[list[Row]], reason: str) -> None:
    trace = read_trace(write(tmp_path / "rank-1.arrows", batches, reason))

    assert (trace.whole, trace.damage, trace.end, trace.meta) == (True, None, reason, META)
    expected = [row for batch in batches for row in batch]
    read = [(x.step, x.phase, x.name, x.spec, x.digest, bits(x.value)) for x in rows_in(trace)]
    assert read == [(*row[:5], bits(row[5])) for row in expected]
    assert [x.seq for x in rows_in(trace)] == list(range(len(expected)))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(rows, max_size=5), second=st.lists(rows, max_size=5), cut=st.integers(0, 5))
def test_content_is_equal_exactly_where_observations_are(
    tmp_path: Path, first: list[Row], second: list[Row], cut: int
) -> None:
    other = TraceMeta(identity="00" * 16, launch=0, rank=0, world_size=1, capture="step")
    one = read_trace(write(tmp_path / "one", [first], "finished"))
    again = read_trace(write(tmp_path / "again", [first[:cut], first[cut:]], "max_steps", other))
    different = read_trace(write(tmp_path / "different", [second]))

    assert again.content == one.content
    same_rows = [(*row[:5], bits(row[5])) for row in first] == [(*row[:5], bits(row[5])) for row in second]
    assert (different.content == one.content) is same_rows


def test_each_field_is_part_of_the_content(tmp_path: Path) -> None:
    row: Row = (0, "param", "w", "float32[1]", b"d" * 16, None)
    variants: list[Row] = [
        row,
        (1, *row[1:]),
        (0, "buffer", *row[2:]),
        (*row[:2], "v", *row[3:]),
        (*row[:3], "float32[2]", *row[4:]),
        (*row[:4], b"d" * 15 + b"e", None),
        (*row[:5], math.nan),
        (*row[:5], 0.0),
        (*row[:5], -0.0),
    ]
    contents = [read_trace(write(tmp_path / str(n), [[variant]])).content for n, variant in enumerate(variants)]

    assert len(set(contents)) == len(variants)


def test_append_many_is_a_row_for_each_digest(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.arrows"
    writer = TraceWriter(path, META)
    writer.append_many(0, "data", "EpochSampler[0].index", "int64[]", b"a" * 16 + b"b" * 16, [4, 7])
    writer.append_many(0, "data", "EpochSampler[0].index", "int64[]", b"c" * 16)
    writer.append_many(0, "data", "EpochSampler[0].index", "int64[]", b"")
    writer.close("finished")

    read = [(x.digest, x.value) for x in rows_in(read_trace(path))]
    assert read == [(b"a" * 16, 4.0), (b"b" * 16, 7.0), (b"c" * 16, None)]


def test_a_trace_without_observations_is_whole_and_empty(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "rank-0.arrows", []))

    assert (trace.whole, len(trace), trace.names, trace.end) == (True, 0, [], "finished")


def test_columns_have_the_promised_types(tmp_path: Path) -> None:
    trace = read_trace(
        write(tmp_path / "rank-0.arrows", [[(0, "loss", "loss", "float32[]", bytes(range(16)), 2.5)]] * 2)
    )

    assert [c.dtype for c in (trace.step, trace.phase, trace.name, trace.spec)] == [np.dtype(np.int32)] * 4
    assert [str(np.asarray(c).dtype) for c in (trace.seq, trace.value, trace.valid)] == ["int64", "float64", "bool"]
    assert (str(trace.digest.dtype), trace.digest.shape) == ("uint64", (2, 2))
    assert trace.rows_of(0).tolist() == [0, 1]
    assert trace.rows_of(1).tolist() == []


def test_any_arrow_tool_reads_it(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rank-0.arrows", [[(n, "loss", f"loss{n}", "float32[]", b"x" * 16, float(n))] for n in range(3)]
    )

    table = ipc.open_stream(path.read_bytes()).read_all()

    assert table.column_names == ["step", "seq", "phase", "name", "spec", "digest", "value"]
    assert table.column("name").to_pylist() == ["loss0", "loss1", "loss2", "finished"]
    assert table.column("seq").to_pylist() == [0, 1, 2, 3]
    assert table.column("value").to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert table.schema.metadata[b"digest"] == b"xxh3-128"
    table.validate(full=True)


def test_long_stretches_without_a_flush_are_written_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.arrows"
    writer = TraceWriter(path, META)
    for n in range(70_000):
        writer.append(0, "data", "x", "int64[]", n.to_bytes(16), None)

    assert len(read_trace(path)) == 1 << 16
    writer.close("finished")
    assert len(read_trace(path)) == 70_000


def test_many_labels_and_batches_join_up(tmp_path: Path) -> None:
    batches: list[list[Row]] = [
        [(n, "param", f"p{n * k % 311}", f"float32[{k}]", bytes([n % 256, k] * 8), None) for k in range(n % 40)]
        for n in range(2000)
    ]
    trace = read_trace(write(tmp_path / "rank-0.arrows", batches))

    expected = [row[:5] for batch in batches for row in batch]
    assert [(x.step, x.phase, x.name, x.spec, x.digest) for x in rows_in(trace)] == expected


def test_a_name_that_is_not_unicode_is_stored_escaped(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "rank-0.arrows", [[(0, "data", "caf\udce9", "int64[]", b"x" * 16, None)]]))

    assert trace.names == ["caf\\udce9"]


def test_refuses_an_existing_file(tmp_path: Path) -> None:
    path = write(tmp_path / "rank-0.arrows", [])
    before = path.read_bytes()

    with pytest.raises(ReproError, match="already there"):
        TraceWriter(path, META)
    assert path.read_bytes() == before


def test_unknown_phases_and_short_digests_are_bugs(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "rank-0.arrows", META)
    with pytest.raises(AssertionError):
        writer.append(0, "param", "w", "float32[]", b"short")
    writer.append(0, "paramm", "w", "float32[]", b"x" * 16)
    with pytest.raises(AssertionError, match="paramm"):
        writer.flush()


def test_missing_foreign_empty_and_newer_files_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReproError, match="no such file"):
        read_trace(tmp_path / "none.arrows")
    with pytest.raises(ReproError, match="cannot read"):
        read_trace(tmp_path)
    empty = tmp_path / "empty.arrows"
    empty.touch()
    with pytest.raises(ReproError, match="no trace"):
        read_trace(empty)
    foreign = tmp_path / "foreign.arrows"
    table = pa.table({"x": [1, 2]})
    with ipc.new_stream(foreign, table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(ReproError, match="no trace"):
        read_trace(foreign)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    newer = write(tmp_path / "newer.arrows", [])
    with pytest.raises(ReproError, match="newer version"):
        read_trace(newer)


def test_rows_added_together_are_as_rows_added_one_by_one(tmp_path: Path) -> None:
    meta = TraceMeta(identity="0", launch=0, rank=0, world_size=1, capture="step")
    rows: list[tuple[int, str, str, str, bytes, float | None]] = [
        (step, phase, f"{phase}.{number}", "float32[2]", bytes([number] * 16), None if number % 2 else float(number))
        for step in range(3)
        for number, phase in enumerate(("loss", "param", "buffer"))
    ]
    together, one_by_one = (TraceWriter(tmp_path / name, meta) for name in ("together", "one_by_one"))
    together.extend(rows)
    together.extend([])
    for row in rows:
        one_by_one.append(*row)
    for writer in (together, one_by_one):
        writer.close("finished")
    traces = [read_trace(tmp_path / name) for name in ("together", "one_by_one")]
    assert traces[0].content == traces[1].content
    assert len(traces[0]) == len(rows)
    assert traces[0].whole
