"""The first operator whose inputs are equal in two launches and whose output differs: what a second look finds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from ddp_repro.trace.observations import Trace

PHASES: Final = ("op", "collective")
_IN: Final = ".in"
_OUT: Final = ".out"

Evidence = Literal["output", "input", "path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One call of an operator, as it was observed.

    ``call`` is its name in the step, ``module`` the path of the module (or the parameter) that it works for,
    ``operator`` its name in torch, ``source`` the line of the user's code, ``node`` the node of the graph whose
    backward it is part of (empty in a forward); ``reads`` and ``leaves`` are dtypes and shapes.
    """

    call: str
    module: str
    operator: str
    source: str
    node: str
    reads: str
    leaves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDivergence:
    """The first operator in which two launches part, on one rank, and what shows it.

    ``evidence``: its inputs are equal and its output is not (``output``); its inputs differ, and no operator that was
    observed made that (``input``); or only one of the launches calls it there (``path``). ``other_call`` is the name of
    the call in the other launch, which differs from the operator's where one made more calls before; empty for none.
    """

    evidence: Evidence
    operator: Operator
    rank: int
    step: int
    other_call: str = ""


_Key = tuple[str, str, int]
"""An operator in its module, the line that called it, and which of the calls of that kind it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    name: str
    key: _Key
    read: int
    left: int | None


Before = tuple[int | None, int | None]
"""The first row that differs, in each of two traces; ``None`` where one has no such row."""


def first_operator(a: Trace, b: Trace, step: int, *, before: Before = (None, None)) -> OperatorDivergence | None:
    """Return where two traces of a rank part in the operators of ``step``; ``None`` where all are equal.

    With ``before``, a row of each: among the operators that were called before it. One whose output alone differs is
    the answer wherever it comes: what memory happens to hold, or a number of Python's, can differ before it and do
    nothing. Calls belong together by operator, module and line, so that one more of them moves no other.
    """
    every_a, every_b = _calls(a, step), _calls(b, step)
    calls_b = {call.key: call for call in every_b}
    entering: OperatorDivergence | None = None
    tainted = False
    for call in _called_before(every_a, before[0]):
        other = calls_b.get(call.key)
        if other is None:
            return entering or _found("path", a, call, step)
        reads_alike = _equal(a, b, call.read, other.read)
        leaves_alike = _equal(a, b, call.left, other.left)
        if reads_alike and not leaves_alike:
            return _found("output", a, call, step, other)
        if not reads_alike and not leaves_alike and not tainted:
            entering, tainted = _found("input", a, call, step, other), True
    if entering is not None:
        return entering
    known = {call.key for call in every_a}
    more = next((call for call in _called_before(every_b, before[1]) if call.key not in known), None)
    return None if more is None else _found("path", b, more, step)


def _called_before(calls: Sequence[_Call], row: int | None) -> list[_Call]:
    return [call for call in calls if row is None or call.read < row]


def _found(evidence: Evidence, trace: Trace, call: _Call, step: int, other: _Call | None = None) -> OperatorDivergence:
    return OperatorDivergence(
        evidence=evidence,
        operator=_operator(trace, call),
        rank=trace.meta.rank,
        step=step,
        other_call="" if other is None else other.name,
    )


def _calls(trace: Trace, step: int) -> list[_Call]:
    """Return the calls of a step in the order in which they were made."""
    reads: dict[str, int] = {}
    leaves: dict[str, int] = {}
    for row, name in _rows(trace, step):
        if name.endswith(_IN):
            reads[name.removesuffix(_IN)] = row
        elif name.endswith(_OUT):
            leaves[name.removesuffix(_OUT)] = row
    made: list[_Call] = []
    seen: Counter[tuple[str, str]] = Counter()
    for name, row in reads.items():
        kind = name.rpartition("#")[0], trace.specs[trace.spec[row]].rpartition(" at ")[2]
        made.append(_Call(name=name, key=(*kind, seen[kind]), read=row, left=leaves.get(name)))
        seen[kind] += 1
    return made


def _rows(trace: Trace, step: int) -> Iterator[tuple[int, str]]:
    codes = [code for code, phase in enumerate(trace.phases) if phase in PHASES]
    for row in np.flatnonzero((trace.step == step) & np.isin(trace.phase, codes)):
        yield int(row), trace.names[trace.name[row]]


def _equal(a: Trace, b: Trace, row_a: int | None, row_b: int | None) -> bool:
    """Return whether two rows have one digest; what was not read on either side says nothing."""
    if row_a is None or row_b is None:
        return True
    return bool((a.digest[row_a] == b.digest[row_b]).all())


def _operator(trace: Trace, call: _Call) -> Operator:
    module, slash, rest = call.name.rpartition("/")
    reads, _, place = trace.specs[trace.spec[call.read]].rpartition(" at ")
    source, _, node = place.partition(" by ")
    return Operator(
        call=call.name,
        module=module if slash else "",
        operator=rest.partition("#")[0],
        source=source,
        node=node,
        reads=reads.strip(),
        leaves="" if call.left is None else trace.specs[trace.spec[call.left]],
    )
