"""One row for each step and phase of a rank instead of all its observations: equal exactly where those are.

Rows that only stand in another order give the same digest, but for data, whose order is content; so do generators that
nothing has drawn from yet, and operators are left out: as when two launches are compared in full.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from ddp_repro.judge.idle import idle_rows
from ddp_repro.judge.operators import PHASES as OPERATORS
from ddp_repro.judge.rows import REPLICATED, Index, Labels, Rows, causal_places, in_phases
from ddp_repro.judge.wording import counted
from ddp_repro.trace.observations import Trace

ALL: Final = "all"
"""Name of the one digest that stands for all that a rank ended with, of one kind."""

Words = npt.NDArray[np.uint64]


def by_phase(trace: Trace) -> Trace:
    """Return the trace with one row for each step and place in causal order.

    A row that is alone there stays as it is, with its name. The others become one without a name, whose spec tells how
    many they are.
    """
    whole = _without_operators(trace)
    place = causal_places(_labels(whole), _rows(whole)).astype(np.int64)
    content, order = _content(whole, place)
    begins = _begins(whole.step[order], place[order])
    sizes = np.diff(np.append(begins, len(order)))
    first = order[begins]
    names, specs = dict[str, int](), dict[str, int]()
    name, spec, digest = [], [], []
    for at, size, row in zip(begins.tolist(), sizes.tolist(), first.tolist(), strict=True):
        is_alone = size == 1
        told = whole.specs[whole.spec[row]] if is_alone else _told(size, whole.specs[whole.spec[row]])
        name.append(names.setdefault(whole.names[whole.name[row]] if is_alone else "", len(names)))
        spec.append(specs.setdefault(told, len(specs)))
        digest.append(xxhash.xxh3_128_digest(content[at : at + size].data))
    return replace(
        whole,
        step=whole.step[first],
        seq=np.arange(len(first), dtype=np.int64),
        phase=whole.phase[first],
        name=np.array(name, np.int32),
        spec=np.array(spec, np.int32),
        digest=np.frombuffer(b"".join(digest), np.uint64).reshape(-1, 2),
        value=np.where(sizes == 1, whole.value[first], np.nan),
        valid=whole.valid[first] & (sizes == 1),
        names=list(names),
        specs=list(specs),
    )


def final_by_kind(final: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a rank ended with, with one digest for all of a kind (parameters, buffers, validation)."""
    return {
        kind: {ALL: xxhash.xxh3_128_hexdigest(repr(sorted(held.items())).encode())}
        for kind, held in final.items()
        if isinstance(held, Mapping) and held
    }


def _told(size: int, spec: str) -> str:
    return counted(size, "observation") + (REPLICATED if spec.endswith(REPLICATED) else "")


def _without_operators(trace: Trace) -> Trace:
    kept = ~in_phases(trace, OPERATORS)
    digest = trace.digest.copy()
    digest[idle_rows(trace)] = 0
    columns = ("step", "seq", "phase", "name", "spec", "value", "valid")
    return replace(trace, digest=digest[kept], **{column: getattr(trace, column)[kept] for column in columns})


def _labels(trace: Trace) -> Labels:
    return Labels(phases=trace.phases, names=trace.names, specs=trace.specs)


def _rows(trace: Trace) -> Rows:
    columns = ("step", "phase", "name", "spec", "digest", "value")
    return Rows(**{column: getattr(trace, column) for column in columns})


def _content(trace: Trace, place: Index) -> tuple[Words, Index]:
    """Return label and digest of each row (uint64[n, 4]), by step, place and label, and the rows in that order."""
    label = _label_digests(trace)
    is_data = in_phases(trace, ("data",))
    within = np.where(is_data, np.uint64(0), label[:, 0])
    order = np.lexsort((within, place, trace.step))  # stable: what has one label stays in its order
    content = np.concatenate([label, trace.digest], axis=1)[order]
    return np.ascontiguousarray(content), order


def _label_digests(trace: Trace) -> Words:
    """Return for each row two words that tell its phase, name and spec from all others."""
    codes = (trace.phase.astype(np.int64) * len(trace.names) + trace.name) * len(trace.specs) + trace.spec
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    texts = (
        "\0".join((trace.phases[trace.phase[row]], trace.names[trace.name[row]], trace.specs[trace.spec[row]]))
        for row in first.tolist()
    )
    words = b"".join(xxhash.xxh3_128_digest(text.encode("utf-8", "backslashreplace")) for text in texts)
    return np.frombuffer(words, np.uint64).reshape(-1, 2)[which]


def _begins(step: npt.NDArray[np.int32], place: Index) -> Index:
    """Return where each step and place begins."""
    if len(step) == 0:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], (np.diff(step) != 0) | (np.diff(place) != 0)]))
