"""What one rank observed: the columns of its trace in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from ddp_repro.trace.schema import TraceMeta

COLUMNS: Final = ("step", "seq", "phase", "name", "spec", "digest", "value", "valid")
"""What a trace has one value of for each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One row of a trace; ``digest`` has 16 bytes."""

    step: int
    seq: int
    phase: str
    name: str
    spec: str
    digest: bytes
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """A column of ``count`` numbers of which few are there: those of ``rows`` (ascending); the others are NaN.

    What is taken out of it is an array.
    """

    rows: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    count: int

    def __getitem__(self, which: Any) -> Any:
        """Return the numbers of some rows, as from an array."""
        if isinstance(which, slice) or getattr(which, "dtype", None) == np.bool_:
            return self.__array__()[which]
        if len(self.rows) == 0:
            return np.full(np.shape(which), np.nan)[()]
        at = np.minimum(np.searchsorted(self.rows, self._from_begin(which)), len(self.rows) - 1)
        return np.where(self.rows[at] == self._from_begin(which), self.numbers[at], np.nan)[()]

    def _from_begin(self, which: Any) -> Any:
        places = np.asarray(which)
        return np.where(places < 0, places + self.count, places)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.float64]:
        """Return all of it."""
        made = np.full(self.count, np.nan)
        made[self.rows] = self.numbers
        return made if dtype is None else made.astype(dtype)

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The observations of one rank, as columns of n rows in execution order, without the closing row.

    ``phase``, ``name`` and ``spec`` are codes into ``phases``, ``names`` and ``specs``, which hold the labels in order
    of first appearance. ``value`` (an array, or ``Values``) is NaN where ``valid`` is false. ``end`` is the reason on
    the closing row (``None``: there is none), ``damage`` one sentence on why the trace is not whole (``None``: it is).
    """

    meta: TraceMeta
    step: npt.NDArray[np.int32]
    seq: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    spec: npt.NDArray[np.int32]
    digest: npt.NDArray[np.uint64]
    value: npt.NDArray[np.float64] | Values
    valid: npt.NDArray[np.bool_]
    phases: list[str]
    names: list[str]
    specs: list[str]
    end: str | None
    damage: str | None
    end_told: bool = False

    @property
    def whole(self) -> bool:
        """Whether every observation that the rank made is here."""
        return self.damage is None

    @property
    def content(self) -> str:
        """A digest over all rows and nothing else: equal exactly where the observations are equal."""
        running = xxhash.xxh3_128()
        for column in (self.step, self.phase, self.name, self.spec, self.digest, self.value, self.valid):
            running.update(np.ascontiguousarray(column).view(np.uint8).data)
        for labels in (self.phases, self.names, self.specs):
            running.update(repr(labels).encode())
        return running.hexdigest()

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.step)

    def observation(self, row: int) -> Observation:
        """Return row ``row`` with its labels."""
        return Observation(
            step=int(self.step[row]),
            seq=int(self.seq[row]),
            phase=self.phases[self.phase[row]],
            name=self.names[self.name[row]],
            spec=self.specs[self.spec[row]],
            digest=self.digest[row].tobytes(),
            value=float(self.value[row]) if self.valid[row] else None,
        )

    @classmethod
    def joined(cls, parts: "Sequence[Trace]") -> "Trace":
        """Return parts of one trace, in order, as one: each has the labels of the parts before it."""
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        return replace(parts[-1], **columns)

    def rows_of(self, step: int) -> npt.NDArray[np.int64]:
        """Return the rows of optimizer step ``step``, in execution order."""
        return np.flatnonzero(self.step == step)
