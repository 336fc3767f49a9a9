"""Equal columns of several traces held in memory once: ranks run the same program, and equal launches are equal."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from ddp_repro.trace.observations import Trace, Values

_COLUMNS: Final = ("step", "seq", "phase", "name", "spec", "digest", "valid")

Column = npt.NDArray[Any]


class SharedColumns:
    """The columns of all traces that were read so far; they are not written to afterwards."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Column] = {}
        self._values: dict[tuple[int, int], Values] = {}

    def shared(self, trace: Trace) -> Trace:
        """Return the trace with each column that an earlier trace has as well being that very one."""
        columns: dict[str, Any] = {name: self._shared(getattr(trace, name)) for name in _COLUMNS}
        return replace(trace, **columns, value=self._numbers(trace))

    def _numbers(self, trace: Trace) -> Values:
        """Return the values alone that are there: of most observations there is none."""
        rows = self._shared(np.flatnonzero(trace.valid))
        numbers = self._shared(trace.value[rows])
        made = Values(rows=rows, numbers=numbers, count=len(trace))
        return self._values.setdefault((id(rows), id(numbers)), made)  # both live as long as this does

    def _shared(self, column: Column) -> Column:
        content = xxhash.xxh3_128_digest(np.ascontiguousarray(column).view(np.uint8).data)
        known = self._known.setdefault((column.dtype.str, content), column)
        return known if known is column or _same(known, column) else column


def _same(one: Column, other: Column) -> bool:
    """Return whether two columns hold the same bits."""
    return one.shape == other.shape and np.array_equal(_bits(one), _bits(other))


def _bits(column: Column) -> Column:
    return column.view(np.int64) if column.dtype == np.float64 else column
