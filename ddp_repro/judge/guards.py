"""What the guard of ``set_epoch`` saw: rows ``<loader>.guard`` and ``<loader>.guard_fixed`` as a pass begins.

The value of the first says what was wrong, that of the second is told where the guard mended it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import GUARD, GUARD_FIXED, split_name
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.reader import Trace

_REASONS: Final = {
    1: "set_epoch was not called before it",
    2: "set_epoch was called, but did not reach the copies that the workers hold",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    rank: int
    step: int
    number: int
    """The number of the pass, -1 where it is unknown."""
    reason: int
    mended: bool


def guard_findings(
    launch: int, traces: Mapping[int, Trace], known: Sequence[Finding]
) -> tuple[list[Finding], list[str]]:
    """Return a finding for each loader that its guard objects to, and notes on those it mended.

    ``known`` are findings on the orders themselves: where one names the loader, it says it all.
    """
    told = {(split_name(one.name) or ("", ""))[0] for one in known}
    seen: dict[str, list[_Said]] = {}
    for _, trace in sorted(traces.items()):
        for loader, said in _rows(trace):
            seen.setdefault(loader, []).append(said)
    findings, notes = [], []
    for loader, rows in seen.items():
        mended = [row for row in rows if row.mended]
        if mended:
            ranks = numbered("rank", sorted({row.rank for row in mended}))
            passes = counted(len({row.number for row in mended}), "pass")
            notes.append(f"{loader}: set_epoch was called for {passes} on {ranks} (epoch_guard=fix)")
        broken = [row for row in rows if not row.mended]
        if broken and loader not in told:
            findings.append(_finding(launch, loader, broken))
    return findings, notes


def _rows(trace: Trace) -> Iterator[tuple[str, _Said]]:
    named = {code: parts for code, name in enumerate(trace.names) if (parts := split_name(name)) is not None}
    for code, (loader, what) in named.items():
        if what not in (GUARD, GUARD_FIXED):
            continue
        for row in np.flatnonzero(trace.name == code):
            yield (
                loader,
                _Said(
                    rank=trace.meta.rank,
                    step=int(trace.step[row]),
                    number=_number(trace, loader, int(row)),
                    reason=int(trace.value[row]) if np.isfinite(trace.value[row]) else 0,
                    mended=what == GUARD_FIXED,
                ),
            )


def _number(trace: Trace, loader: str, row: int) -> int:
    """Return the number of the pass that had begun before a row."""
    name = f"{loader}.pass"
    if name not in trace.names:
        return -1
    begun = np.flatnonzero(trace.name[:row] == trace.names.index(name))
    return int(trace.value[begun[-1]]) if len(begun) and np.isfinite(trace.value[begun[-1]]) else -1


def _finding(launch: int, loader: str, rows: Sequence[_Said]) -> Finding:
    first = min(rows, key=lambda row: row.step)
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=first.step,
        ranks=tuple(sorted({row.rank for row in rows if row.step == first.step})),
        phase="data",
        name=f"{loader}.{GUARD}",
    )
    number = str(first.number) if first.number >= 0 else "of unknown number"
    reason = _REASONS.get(first.reason, "set_epoch had no effect")
    return finding("epoch-guard", place, {"loader": loader, "pass": number, "reason": reason})
