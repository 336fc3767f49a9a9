"""What the user asked to be ignored: rows by globs on their names, and how many of them there were."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddp_repro.judge.rows import Mask
from ddp_repro.judge.wording import counted
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.observations import COLUMNS, Trace
from ddp_repro.trace.schema import PHASES


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One entry of ``judge.ignore``: a glob on names (``*`` and ``?``), in one phase where that is named before it."""

    text: str
    phase: str | None
    glob: re.Pattern[str]

    def covers(self, phase: str, name: str) -> bool:
        """Return whether a row is meant."""
        return self.phase in (None, phase) and self.glob.fullmatch(name) is not None


def pattern(text: str) -> Pattern:
    """Read ``"*.running_mean"`` or ``"buffer:*.running_mean"``; brackets, which names have, stand for themselves."""
    phase, colon, rest = text.partition(":")
    is_phase = bool(colon) and phase in PHASES
    glob = rest if is_phase else text
    expression = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in glob)
    return Pattern(text=text, phase=phase if is_phase else None, glob=re.compile(expression, re.DOTALL))


def without_ignored(launches: Sequence[Launch], ignore: Sequence[str]) -> tuple[list[Launch], list[str]]:
    """Return the launches without the rows that are to be ignored, and a note on each pattern with how many it took."""
    patterns = [pattern(text) for text in ignore]
    taken = dict.fromkeys(ignore, 0)
    kept = [_without(launch, patterns, taken) for launch in launches] if patterns else list(launches)
    return kept, [
        f"ignored as judge.ignore says, {text}: {counted(rows, 'row')}"
        if rows
        else f"judge.ignore names {text}, which no observation has"
        for text, rows in taken.items()
    ]


def rows_kept(trace: Trace, kept: Mask) -> Trace:
    """Return the trace with the rows that ``kept`` (bool[n]) marks, in their order."""
    return trace if kept.all() else replace(trace, **{column: getattr(trace, column)[kept] for column in COLUMNS})


def _without(launch: Launch, patterns: Sequence[Pattern], taken: dict[str, int]) -> Launch:
    traces = {rank: _kept(trace, patterns, taken) for rank, trace in launch.traces.items()}
    finals = {rank: _final(final, patterns) for rank, final in launch.finals.items()}
    return replace(launch, traces=traces, finals=finals)


def _kept(trace: Trace, patterns: Sequence[Pattern], taken: dict[str, int]) -> Trace:
    kept = np.ones(len(trace), np.bool_)
    for one in patterns:
        codes = [code for code, name in enumerate(trace.names) if one.glob.fullmatch(name)]
        phases = [code for code, phase in enumerate(trace.phases) if one.phase in (None, phase)]
        ignored = np.isin(trace.name, codes) & np.isin(trace.phase, phases)
        taken[one.text] += int(np.count_nonzero(ignored))
        kept &= ~ignored
    return rows_kept(trace, kept)


def _final(final: dict[str, Any], patterns: Sequence[Pattern]) -> dict[str, Any]:
    """Return what a rank ended with, less the names that are to be ignored; not counted, as their rows are."""
    return {
        phase: {name: value for name, value in held.items() if not any(one.covers(phase, name) for one in patterns)}
        if isinstance(held, dict)
        else held
        for phase, held in final.items()
    }
