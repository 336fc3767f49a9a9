"""Parts of batches in which the observer could see nothing, or not all: equal there says little."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from ddp_repro.judge.passes import split_name
from ddp_repro.judge.wording import listed
from ddp_repro.trace.reader import Trace

_OPAQUE: Final = "opaque "


def opaque_notes(traces: Iterable[Trace]) -> list[str]:
    """Return a note for each loader whose batches, or their indices, hold what was told by little but its type."""
    found: dict[str, dict[str, None]] = {}
    for trace in traces:
        for name, spec in _opaque(trace):
            parts = split_name(name) or (name, "")
            found.setdefault(parts[0], {})[spec.removeprefix(_OPAQUE)] = None
    return [
        f"{loader}: of parts of its batches that are of type {listed(types)} the content was not compared; what a "
        "batch holds is seen in tensors, arrays, numbers, text, containers and attributes"
        for loader, types in found.items()
    ]


def _opaque(trace: Trace) -> list[tuple[str, str]]:
    """Return each pair of a name and an opaque spec that a trace has."""
    specs = [code for code, spec in enumerate(trace.specs) if spec.startswith(_OPAQUE)]
    rows = np.flatnonzero(np.isin(trace.spec, specs)) if specs else np.empty(0, np.int64)
    pairs = np.unique(np.stack([trace.name[rows], trace.spec[rows]]), axis=1)
    return [(trace.names[name], trace.specs[spec]) for name, spec in pairs.T]
