"""Turns what the probes see into rows of one rank's trace, and counts its steps."""

import math
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, SupportsIndex, cast

import torch

from ddp_repro.observe.digest import bytes_digest, observation

if TYPE_CHECKING:
    from ddp_repro.trace.writer import TraceWriter

BEFORE_THE_FIRST_STEP: Final = -1

_ROWS_KEPT: Final = 4096  # rows held back here in a stretch without a step, before the writer gets them
_INT64: Final = struct.Struct("<q")
_FLOAT64: Final = struct.Struct("<d")

Row = tuple[int, str, str, str, bytes, float | list[float] | None]
PlainRow = tuple[int, str, str, str, bytes, float | None]
"""Step, phase, name, spec, digest, value; with a list of values it stands for that many rows, digests one by one."""
Scalar = tuple[str, bytes, float | None]


class Recorder:
    """One rank's observations on their way to its trace.

    Rows are gathered in a list, whose ``append`` is atomic: autograd's threads and a loader's prefetching thread may
    add rows at the same time. They reach the writer once a step, after which ``on_step`` gets the number of steps done.
    With no writer only steps are counted; one that is ``pending`` keeps its rows until ``open`` gives it a writer. In a
    forked child (a loader's worker) a recorder is silent: the trace is the
    parent's.
    """

    def __init__(
        self,
        writer: "TraceWriter | None",
        on_step: Callable[[int], None] | None = None,
        *,
        pending: bool = False,
    ) -> None:
        self.step = 0
        self.silent = False
        self.rows: list[Row] = []
        self._writer = writer
        self._pending = pending
        self._paused = False
        self._on_step = on_step
        self._flushing = threading.Lock()
        _recorders.add(self)

    def add(self, phase: str, name: str, tensor: torch.Tensor, *, replicated: bool = False) -> None:
        """Record ``tensor`` (any dtype, shape, device and layout) at the step that is under way."""
        spec, digest = observation(tensor)
        self.rows.append((self.step, phase, name, spec.replicated if replicated else spec.text, digest, None))

    def add_fact(self, phase: str, name: str, fact: Scalar) -> None:
        """Record a fact: a number, a text, bytes; made by ``number``, ``text`` or by hand."""
        self.rows.append((self.step, phase, name, *fact))

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Record rows that were made elsewhere; pass on what has gathered where no step does it."""
        self.rows.extend(rows)
        if len(self.rows) > _ROWS_KEPT:
            self.flush()

    def open(self, writer: "TraceWriter") -> None:
        """Give a pending recorder its writer; rows that gathered reach it with the next flush."""
        assert self._pending, "a recorder that was made with a writer"
        self._writer = writer
        self._pending = False

    def finish_step(self) -> None:
        """Count a step, after its last row: write its rows and report it."""
        self.flush()
        self.step += 1
        if self._on_step is not None:
            self._on_step(self.step)

    def flush(self) -> None:
        """Hand the gathered rows to the writer and have them written. Raises ``ReproError`` where that fails."""
        if self._pending or self._paused:
            return
        with self._flushing:
            count = len(self.rows)
            rows = self.rows[:count]
            # Taken off in place: another thread may be adding to this very list.
            del self.rows[:count]
            if self._writer is None or self.silent:
                return
            self._write(self._writer, rows)
            self._writer.flush()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Observe nothing while the context lasts; rows that were gathered before stay and are written after it."""
        before = self.silent, self._paused
        self.silent = self._paused = True
        try:
            yield
        finally:
            self.silent, self._paused = before

    @staticmethod
    def _write(writer: "TraceWriter", rows: list[Row]) -> None:
        written = 0
        for at, (step, phase, name, spec, digests, values) in enumerate(rows):
            if type(values) is list:
                writer.extend(cast("list[PlainRow]", rows[written:at]))
                writer.append_many(step, phase, name, spec, digests, values)
                written = at + 1
        writer.extend(cast("list[PlainRow]", rows[written:]))


@contextmanager
def paused() -> Iterator[None]:
    """Have no recorder of this process observe what is done within: work that is no part of the training."""
    with ExitStack() as stack:
        for recorder in list(_recorders):
            stack.enter_context(recorder.paused())
        yield


def number(value: float) -> Scalar:
    """Return the fact that a Python ``bool``, ``int`` or ``float`` is; its digest is over 8 bytes."""
    if isinstance(value, bool):
        return "bool[]", bytes_digest(bytes((value,)), "bool[]"), float(value)
    if isinstance(value, int):
        return _integer(value)
    return "float64[]", bytes_digest(_FLOAT64.pack(value), "float64[]"), float(value)


def text(value: str) -> Scalar:
    """Return the fact that a text is."""
    return "text", bytes_digest(value.encode("utf-8", "surrogatepass"), "text"), None


def integers(values: Sequence[SupportsIndex]) -> tuple[str, bytes, list[float]] | None:
    """Return ``number`` of each of n integers, with their digests one after the other; ``None`` for other things."""
    try:
        packed = struct.pack(f"<{len(values)}q", *values)
    except (struct.error, TypeError, ValueError, RuntimeError):  # tensors and arrays have an __index__ that may refuse
        return None
    digests = [bytes_digest(packed[at : at + 8], "int64[]") for at in range(0, len(packed), 8)]
    return "int64[]", b"".join(digests), [float(value) for value in memoryview(packed).cast("q")]


def _integer(value: int) -> Scalar:
    if -(1 << 63) <= value < 1 << 63:
        return "int64[]", bytes_digest(_INT64.pack(value), "int64[]"), float(value)
    return "int", bytes_digest(str(value).encode(), "int"), math.inf if value > 0 else -math.inf


_recorders: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()


def _silence_in_child() -> None:
    for recorder in _recorders:
        recorder.silent = True


os.register_at_fork(after_in_child=_silence_in_child)
