"""Columns of several traces with one set of labels, so that they compare as integers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from ddp_repro.trace.observations import Values
from ddp_repro.trace.reader import Trace
from ddp_repro.trace.schema import PHASES

REPLICATED: Final = " replicated"
"""Suffix of the spec of what must be equal on all ranks."""

LAYOUT: Final = re.compile(r"(?:.*\.)?bucket_layout", re.DOTALL)
"""Names of rows that tell the layout of DDP's buckets."""

Codes = npt.NDArray[np.int32]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_ROWS: Final[Index] = np.empty(0, np.int64)

_CAUSAL: Final = {phase: 2 * place for place, phase in enumerate(PHASES)}
_UNKNOWN: Final = 2 * len(PHASES)
_FORWARD_ENTRY: Final = _CAUSAL["forward"] - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """The labels of all traces that are compared; codes are places in these lists."""

    phases: list[str]
    names: list[str]
    specs: list[str]

    def phase(self, label: str) -> int:
        """Return the code of a phase, -1 where no trace has it."""
        return self.phases.index(label) if label in self.phases else -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Columns of n observations of one rank, in execution order; digests are ``uint64[n, 2]``."""

    step: Codes
    phase: Codes
    name: Codes
    spec: Codes
    digest: npt.NDArray[np.uint64]
    value: npt.NDArray[np.float64] | Values

    def __len__(self) -> int:
        return len(self.step)

    def take(self, which: Index | Mask | slice) -> "Rows":
        """Return some of the rows, in the order of ``which``."""
        return Rows(**{column.name: getattr(self, column.name)[which] for column in fields(self)})

    @classmethod
    def joined(cls, *parts: "Rows") -> "Rows":
        """Return the parts one after the other."""
        columns = (column.name for column in fields(cls))
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})


def unified(traces: Sequence[Trace]) -> tuple[Labels, list[Rows]]:
    """Return the traces' columns with their codes translated into one common set of labels."""
    phases, names, specs = ({}, {}, {})  # type: tuple[dict[str, int], dict[str, int], dict[str, int]]
    rows = [
        Rows(
            step=trace.step,
            phase=_translated(trace.phase, trace.phases, phases),
            name=_translated(trace.name, trace.names, names),
            spec=_translated(trace.spec, trace.specs, specs),
            digest=trace.digest,
            value=trace.value,
        )
        for trace in traces
    ]
    return Labels(phases=list(phases), names=list(names), specs=list(specs)), rows


def _translated(codes: Codes, labels: list[str], common: dict[str, int]) -> Codes:
    translation = np.array([common.setdefault(label, len(common)) for label in labels], dtype=np.int32)
    if np.array_equal(translation, np.arange(len(labels), dtype=np.int32)):
        return codes
    return translation[codes]


def causal_places(labels: Labels, rows: Rows) -> Codes:
    """Return each row's place in causal order within its step.

    That is the place of its phase; buffers that are equal on all ranks are read at the entry of the forward, not after
    the step, and stand before it. Phases that this version does not know come last.
    """
    of_phase = np.array([_CAUSAL.get(phase, _UNKNOWN) for phase in labels.phases], dtype=np.int32)
    replicated = np.array([spec.endswith(REPLICATED) for spec in labels.specs], dtype=np.bool_)
    at_entry = (rows.phase == labels.phase("buffer")) & replicated[rows.spec]
    return np.where(at_entry, np.int32(_FORWARD_ENTRY), of_phase[rows.phase])


def causal_place(phase: str) -> int:
    """Return the place of ``phase`` in causal order, comparable with ``causal_places``."""
    return _CAUSAL.get(phase, _UNKNOWN)


def in_phases(trace: Trace, phases: tuple[str, ...]) -> Mask:
    """Return which rows of a trace are of one of the phases."""
    return np.isin(trace.phase, [code for code, phase in enumerate(trace.phases) if phase in phases])
