"""No damage to a trace goes unnoticed, none stops the reader, and none costs what was whole before it."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_repro.errors import ReproError
from ddp_repro.trace.reader import Trace, read_trace, trace_in
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.seal import END_OF_STREAM, intact_prefix
from ddp_repro.trace.writer import TraceWriter

META = TraceMeta(identity="5e" * 16, launch=0, rank=0, world_size=2, capture="step")
ROWS_OF_A_STEP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A small trace: its bytes, where each sealed batch ends, and the observations up to there."""

    data: bytes
    ends: list[int]
    rows: list[int]
    whole: Trace

    def groups(self) -> list[bytes]:
        """Return the schema with its empty batch, one batch a step, the closing batch, the end marker."""
        return [self.data[start:end] for start, end in pairwise([0, *self.ends, len(self.data)])]


def record(path: Path, salt: int = 0, steps: int = 3) -> Recorded:
    writer = TraceWriter(path, META)
    ends, rows = [path.stat().st_size], [0]
    for step in range(steps):
        writer.append(step, "loss", "loss", "float32[]", bytes([salt, step] * 8), 0.5 * step)
        writer.append(step, "param", f"layer{step}.weight", "float32[2]", bytes([salt, step + 1] * 8))
        writer.append(step, "param", "head.bias", "float32[1]", bytes(16))
        writer.flush()
        ends.append(path.stat().st_size)
        rows.append(ROWS_OF_A_STEP * (step + 1))
    writer.close("finished")
    data = path.read_bytes()
    ends.append(len(data) - len(END_OF_STREAM))
    rows.append(rows[-1])
    return Recorded(data=data, ends=ends, rows=rows, whole=read_trace(path))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("trace") / "rank-0.arrows")


def read(data: bytes) -> Trace | None:
    """Read ``data``; ``None`` where not even its beginning is a trace."""
    try:
        return trace_in(pa.py_buffer(data), Path("rank-0.arrows"))
    except ReproError:
        return None


def observations(trace: Trace) -> list[object]:
    return [trace.observation(row) for row in range(len(trace))]


def assert_never_mistaken(data: bytes, original: Recorded) -> None:
    """Damage is reported, and what is still told is a beginning of the original; or nothing changed."""
    trace = read(data)
    if trace is None:
        return
    assert trace.meta == original.whole.meta
    assert observations(trace) == observations(original.whole)[: len(trace)]
    if trace.whole:
        assert trace.content == original.whole.content
        assert data == original.data


def test_the_end_marker_is_the_only_thing_behind_the_last_seal(recorded: Recorded) -> None:
    assert recorded.groups()[-1] == END_OF_STREAM
    assert recorded.whole.whole
    assert len(recorded.whole) == recorded.rows[-1]


def test_cut_at_every_byte_keeps_every_whole_batch(recorded: Recorded) -> None:
    for size in range(len(recorded.data)):
        trace = read(recorded.data[:size])
        kept = [rows for end, rows in zip(recorded.ends, recorded.rows, strict=True) if end <= size]
        if not kept:
            assert trace is None, size
            continue
        assert trace is not None, size
        assert len(trace) == kept[-1], size
        assert trace.damage is not None, size
    assert_never_mistaken(recorded.data[: recorded.ends[2]], recorded)


def test_a_cut_between_batches_says_so(recorded: Recorded) -> None:
    trace = read(recorded.data[: recorded.ends[2]])
    assert trace is not None
    assert trace.damage == (
        "the trace is cut: its rank stopped before it closed it; 6 observations are whole (up to step 1)"
    )
    torn = read(recorded.data[: recorded.ends[2] + 9])
    assert torn is not None
    assert torn.damage is not None
    assert "damaged or cut short at byte" in torn.damage


def test_every_flipped_bit_is_noticed(recorded: Recorded) -> None:
    """What is trusted ends before the flipped bit, so what is decoded is as it was written."""
    data = bytearray(recorded.data)
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        intact = intact_prefix(pa.py_buffer(data))
        assert intact.size <= bit // 8, bit
        assert not intact.ended, bit
        data[bit // 8] ^= 1 << bit % 8


def test_a_flipped_bit_in_every_byte_costs_only_what_follows(recorded: Recorded) -> None:
    for byte in range(0, len(recorded.data), 3):
        data = bytearray(recorded.data)
        data[byte] ^= 1 << byte % 8
        trace = read(bytes(data))
        kept = [rows for end, rows in zip(recorded.ends, recorded.rows, strict=True) if end <= byte]
        if not kept:
            assert trace is None, byte
            continue
        assert trace is not None, byte
        assert trace.damage is not None, byte
        assert observations(trace) == observations(recorded.whole)[: kept[-1]], byte


def test_batches_that_are_dropped_repeated_or_swapped_are_noticed(recorded: Recorded) -> None:
    groups = recorded.groups()
    for n in range(len(groups)):
        assert_never_mistaken(b"".join(groups[:n] + groups[n + 1 :]), recorded)
        assert_never_mistaken(b"".join(groups[: n + 1] + groups[n:]), recorded)
        for k in range(n):
            swapped = [*groups]
            swapped[n], swapped[k] = groups[k], groups[n]
            assert_never_mistaken(b"".join(swapped), recorded)
    assert_never_mistaken(recorded.data + recorded.data, recorded)
    assert_never_mistaken(recorded.data + b"\0", recorded)


def test_batches_of_another_trace_do_not_fit(recorded: Recorded, tmp_path: Path) -> None:
    other = record(tmp_path / "rank-0.arrows", salt=1)
    for n, (group, foreign) in enumerate(zip(recorded.groups(), other.groups(), strict=True)):
        if group != foreign:
            mixed = recorded.groups()
            mixed[n] = foreign
            trace = read(b"".join(mixed))
            assert trace is None or not trace.whole, n


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=400), head=st.sampled_from([b"", b"\xff\xff\xff\xff", b"ARROW1\0\0"]))
def test_garbage_is_no_trace(data: bytes, head: bytes) -> None:
    assert read(head + data) is None


@settings(max_examples=400, deadline=None)
@given(at=st.floats(0, 1), remove=st.integers(0, 64), insert=st.binary(max_size=64))
def test_replaced_bytes_are_noticed(recorded: Recorded, at: float, remove: int, insert: bytes) -> None:
    start = int(at * len(recorded.data))
    assert_never_mistaken(recorded.data[:start] + insert + recorded.data[start + remove :], recorded)


@pytest.mark.parametrize("value", [b"\xff" * 4, b"\x00" * 4, b"\xff\xff\xff\x7f", b"\xff" * 7 + b"\x7f"])
def test_hostile_lengths_are_noticed(recorded: Recorded, value: bytes) -> None:
    for at in range(0, len(recorded.data) - len(value), 4):
        data = bytearray(recorded.data)
        data[at : at + len(value)] = value
        if data != recorded.data:
            intact = intact_prefix(pa.py_buffer(data))
            assert intact.size < at + len(value)
            assert not intact.ended


def forged(recorded: Recorded, data: bytearray) -> bytes:
    """Seal ``data`` (as long as the original) anew, so that damage gets as far as Arrow's decoder."""
    running = xxhash.xxh3_128()
    for start, end in pairwise([0, *recorded.ends]):
        at = recorded.data.index(b"xxh3-128=", start) + len(b"xxh3-128=")
        data[at : at + 32] = b"0" * 32
        running.update(data[start:end])
        data[at : at + 32] = running.hexdigest().encode()
    return bytes(data)


def test_forged_seals_are_seals(recorded: Recorded) -> None:
    assert forged(recorded, bytearray(recorded.data)) == recorded.data


@settings(max_examples=1000, deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_not_even_a_forged_trace_stops_the_reader(recorded: Recorded, at: float, bit: int) -> None:
    """It may tell anything, as its seals are right; but it neither crashes nor raises what is no ``ReproError``."""
    data = bytearray(recorded.data)
    data[int(at * len(data))] ^= 1 << bit
    with suppress(ReproError):
        trace = trace_in(pa.py_buffer(forged(recorded, data)), Path("rank-0.arrows"))
        assert len(trace) <= len(recorded.whole) + 1
        observations(trace)


def test_a_closed_trace_is_read_from_disk_while_an_open_one_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.arrows"
    writer = TraceWriter(path, META)
    writer.append(0, "loss", "loss", "float32[]", bytes(16), 1.0)
    writer.flush()
    writer.append(1, "loss", "loss", "float32[]", bytes(16), 1.0)

    growing = read_trace(path)
    writer.close("failed")
    writer.close("again")

    assert (len(growing), growing.end) == (1, None)
    assert growing.damage is not None
    closed = read_trace(path)
    assert (len(closed), closed.end, closed.damage) == (2, "failed", None)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let writes beyond ``size`` bytes of any file fail, after as many bytes as fit, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_costs_nothing_recorded_before(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.arrows"
    writer = TraceWriter(path, META)
    writer.append(0, "loss", "loss", "float32[]", bytes(16), 1.0)
    writer.flush()
    size = path.stat().st_size
    writer.append(1, "loss", "loss", "float32[]", bytes(16), 1.0)

    with file_size_limit(size + 100), pytest.raises(ReproError, match="cannot write the trace") as caught:
        writer.flush()
    writer.append(2, "loss", "loss", "float32[]", bytes(16), 1.0)
    writer.flush()
    writer.close("finished")

    assert str(path) in str(caught.value)
    assert "free space" in caught.value.hint
    assert path.stat().st_size == size
    trace = read_trace(path)
    assert len(trace) == 1
    assert trace.damage is not None


def test_a_full_disk_at_the_close_is_told_and_the_file_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TraceWriter(tmp_path / "rank-0.arrows", META)

    def no_space(_file: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", no_space)
        with pytest.raises(ReproError, match="No space left on device"):
            writer.close("finished")
    writer.close("finished")

    assert not read_trace(tmp_path / "rank-0.arrows").whole


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReproError, match="No such file or directory"):
        TraceWriter(tmp_path / "none" / "rank-0.arrows", META)
