"""What the guard of ``set_epoch`` saw: rows ``<loader>.guard`` in phase ``data``, one for each pass that it objects to.

The spec of such a row says what was wrong (``not-called``, ``not-reached``) or that it was mended (``fixed``), its
value is the number of the pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.reader import Trace

_FIXED: Final = "fixed"
_REASONS: Final = {
    "not-called": "set_epoch was not called before it",
    "not-reached": "set_epoch was called, but not on what decides the order (a wrapped sampler, a worker's copy)",
}


def guard_findings(
    launch: int, traces: Mapping[int, Trace], known: Sequence[Finding]
) -> tuple[list[Finding], list[str]]:
    """Return a finding for each loader that its guard objects to, and notes on those it mended.

    ``known`` are findings on the orders themselves: where one names the loader, it says it all.
    """
    told = {(split_name(one.name) or ("", ""))[0] for one in known}
    seen: dict[str, list[tuple[int, int, str, float]]] = {}
    for rank, trace in sorted(traces.items()):
        for loader, step, spec, value in _rows(trace):
            seen.setdefault(loader, []).append((rank, step, spec, value))
    findings, notes = [], []
    for loader, rows in seen.items():
        mended = [row for row in rows if row[2] == _FIXED]
        if mended:
            ranks = sorted({rank for rank, *_ in mended})
            passes = counted(len({value for *_, value in mended}), "pass")
            notes.append(f"{loader}: set_epoch was called for {passes} on {numbered('rank', ranks)} (epoch_guard=fix)")
        broken = [row for row in rows if row[2] != _FIXED]
        if broken and loader not in told:
            findings.append(_finding(launch, loader, broken))
    return findings, notes


def _rows(trace: Trace) -> Iterator[tuple[str, int, str, float]]:
    codes = {
        code: parts[0] for code, name in enumerate(trace.names) if (parts := split_name(name)) and parts[1] == "guard"
    }
    for row in np.flatnonzero(np.isin(trace.name, list(codes))):
        yield codes[int(trace.name[row])], int(trace.step[row]), trace.specs[trace.spec[row]], float(trace.value[row])


def _finding(launch: int, loader: str, rows: Sequence[tuple[int, int, str, float]]) -> Finding:
    _, step, spec, value = min(rows, key=lambda row: row[1])
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=step,
        ranks=tuple(sorted({rank for rank, at, *_ in rows if at == step})),
        phase="data",
        name=f"{loader}.guard",
    )
    number = f"{value:.0f}" if np.isfinite(value) else "of unknown number"
    return finding("epoch-guard", place, {"loader": loader, "pass": number, "reason": _REASONS.get(spec, spec)})
