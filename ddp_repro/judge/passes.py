"""Passes over loaders, as a rank's trace shows them: settings, the samples delivered, whether it was exhausted."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.rows import Index
from ddp_repro.trace.reader import Trace

FACTS: Final = (
    "pass", "length", "shuffle", "drop_last", "num_replicas", "sampler_rank", "epoch", "num_workers", "passed_over",
)  # fmt: skip
PASSED_OVER: Final = "passed_over"
"""How many samples of a rank a pass began after, where the run before it was stopped."""
GUARD: Final = "guard"
GUARD_FIXED: Final = "guard_fixed"
_LOADER: Final = re.compile(r"([^\[\]]+\[\d+\])\.(.+)", re.DOTALL)
_FIRST_ROWS: Final = 4096  # how far the content of the first batch is looked for behind its first index
_OF_LOADERS: Final = ("data", "rng")
_TRAINING: Final = ("loss", "grad_local", "grad_reduced", "grad_step")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """One pass of one rank over one loader, up to where the run left it.

    ``facts`` are what the loader and its sampler said at its start, absent where unknown. ``samples`` holds one number
    a delivered sample, equal exactly where the sample's index is; ``rows`` are their places in the trace; ``content``
    holds a digest for each tensor of the first batch. ``trains`` is whether a loss was taken inside the pass, ``None``
    where that cannot be told; ``whole`` whether the loader was exhausted, and ``clear`` whether its rows are those of
    one pass alone (two iterators over one loader at a time are not).
    """

    loader: str
    number: int
    rank: int
    facts: dict[str, float]
    start: int
    step: int
    samples: npt.NDArray[np.uint64]
    rows: Index
    content: frozenset[bytes]
    whole: bool
    clear: bool
    trains: bool | None

    @cached_property
    def batches(self) -> Index:
        """Sizes of the delivered batches: rows of one batch follow each other without a gap."""
        if len(self.rows) == 0:
            return np.empty(0, np.int64)
        begins = np.flatnonzero(np.concatenate([[True], np.diff(self.rows) != 1]))
        return np.diff(np.concatenate([begins, [len(self.rows)]]))

    def fact(self, name: str) -> int | None:
        """Return a fact as an integer, ``None`` where it is unknown."""
        value = self.facts.get(name)
        return None if value is None or not np.isfinite(value) else int(value)


def split_name(name: str) -> tuple[str, str] | None:
    """Return the loader (``EpochSampler[0]``) and what is said of it (``batch.x``), ``None`` for another name."""
    match = _LOADER.fullmatch(name)
    return (match[1], match[2]) if match else None


def passes_of(trace: Trace) -> list[Pass]:
    """Return the passes of a rank, by loader in order of its first row, then in order of time."""
    training = _rows_of_phases(trace, _TRAINING)
    drafts = [draft for loader, codes in _loaders(trace).items() for draft in _drafts(trace, loader, codes)]
    loaders = _loader_rows(trace)
    return [_finished(trace, draft, loaders, training) for draft in drafts]


def loader_of_rows(trace: Trace) -> tuple[list[str], Index]:
    """Return the loaders that a trace names, and for each row the number of the one it tells of, -1 for none."""
    loaders: dict[str, int] = {}
    of_name = np.full(len(trace.names) + 1, -1)
    for code, name in enumerate(trace.names):
        parts = split_name(name)
        if parts is not None:
            of_name[code] = loaders.setdefault(parts[0], len(loaders))
    told = np.isin(trace.phase, [code for code, phase in enumerate(trace.phases) if phase in _OF_LOADERS])
    return list(loaders), np.where(told, of_name[trace.name], -1)


def _loader_rows(trace: Trace) -> dict[str, tuple[Index, Index]]:
    """Return for each loader the rows that tell of it, and those that tell of any other one."""
    loaders, of_row = loader_of_rows(trace)
    others = of_row >= 0
    return {
        loader: (np.flatnonzero(of_row == number), np.flatnonzero(others & (of_row != number)))
        for number, loader in enumerate(loaders)
    }


@dataclass(slots=True, kw_only=True, eq=False)
class _Draft:
    """A pass while its rows are gathered; ``stop`` is the first row that cannot be its own."""

    loader: str
    facts: dict[str, float]
    start: int
    rows: Index
    ends: Index
    stop: int
    clear: bool


def _loaders(trace: Trace) -> dict[str, dict[str, int]]:
    """Return for each loader the name codes of its facts, of ``index`` and of ``end``."""
    loaders: dict[str, dict[str, int]] = {}
    for code, name in enumerate(trace.names):
        parts = split_name(name)
        if parts is not None and (parts[1] in FACTS or parts[1] in ("index", "end")):
            loaders.setdefault(parts[0], {})[parts[1]] = code
    return loaders


def _drafts(trace: Trace, loader: str, codes: Mapping[str, int]) -> Iterator[_Draft]:
    data = trace.phases.index("data") if "data" in trace.phases else -1
    mine = np.flatnonzero((trace.phase == data) & np.isin(trace.name, list(codes.values())))
    names = trace.name[mine]
    index, end = codes.get("index", -1), codes.get("end", -1)
    is_fact = (names != index) & (names != end)
    starts = _starts(mine, names, is_fact)
    for place, start in enumerate(starts):
        stop = starts[place + 1] if place + 1 < len(starts) else len(mine)
        rows, kinds = mine[start:stop], names[start:stop]
        ends = rows[kinds == end]
        delivered = rows[kinds == index]
        yield _Draft(
            loader=loader,
            facts=_facts(trace, rows[is_fact[start:stop]]),
            start=int(rows[0]),
            rows=delivered,
            ends=ends,
            stop=int(mine[stop]) if stop < len(mine) else len(trace),
            clear=len(ends) <= 1 and bool(len(ends) == 0 or len(delivered) == 0 or ends[0] > delivered[-1]),
        )


def _starts(mine: Index, names: npt.NDArray[np.int32], is_fact: npt.NDArray[np.bool_]) -> list[int]:
    """Return where passes begin among a loader's rows: at a fact after anything else, or that was already told."""
    starts: list[int] = []
    told: set[int] = set()
    previous = -2
    for place in np.flatnonzero(is_fact):
        name = int(names[place])
        if place != previous + 1 or name in told:
            starts.append(int(place))
            told = set()
        told.add(name)
        previous = int(place)
    if len(mine) and (not starts or starts[0] != 0):
        starts.insert(0, 0)  # rows before any fact: still a pass, of which nothing is known
    return starts


def _facts(trace: Trace, rows: Index) -> dict[str, float]:
    facts = {}
    for row in rows:
        parts = split_name(trace.names[trace.name[row]])
        assert parts is not None, "a fact has a loader"
        facts[parts[1]] = float(trace.value[row])
    return facts


def _finished(trace: Trace, draft: _Draft, loaders: Mapping[str, tuple[Index, Index]], training: Index) -> Pass:
    whole = len(draft.ends) > 0 and not draft.facts.get(PASSED_OVER)  # one that a resumed run goes on with is none
    number = draft.facts.get("pass")
    return Pass(
        loader=draft.loader,
        number=int(number) if number is not None and np.isfinite(number) else -1,
        rank=trace.meta.rank,
        facts=draft.facts,
        start=draft.start,
        step=int(trace.step[draft.start]),
        samples=trace.digest[draft.rows, 0],
        rows=draft.rows,
        content=_first_content(trace, draft),
        whole=whole,
        clear=draft.clear,
        trains=_trains(draft, loaders[draft.loader], training),
    )


def _first_content(trace: Trace, draft: _Draft) -> frozenset[bytes]:
    """Return the digests of the first batch's tensors, which follow its indices without anything computed between."""
    if len(draft.rows) == 0:
        return frozenset()
    own = f"{draft.loader}.batch"
    found = []
    begin = int(draft.rows[0])
    for row in range(begin, min(begin + _FIRST_ROWS, draft.stop)):
        if trace.phases[trace.phase[row]] not in ("data", "rng"):
            break
        if trace.names[trace.name[row]].startswith(own):
            found.append(trace.digest[row].tobytes())
    return frozenset(found)


def _trains(draft: _Draft, rows: tuple[Index, Index], training: Index) -> bool | None:
    """Return whether a loss or a gradient was seen inside the pass.

    A pass that was left early has no end. Up to its last batch it is certain; what follows may belong to it, until its
    loader begins anew or another one begins a pass or delivers a batch, to which the training belongs then.
    """
    if len(draft.ends):
        return _any_between(training, draft.start, int(draft.ends[-1]))
    mine, others = rows
    last = int(mine[np.searchsorted(mine, draft.stop) - 1])
    if _any_between(training, draft.start, last):
        return True
    next_other = int(np.searchsorted(others, last))
    until = min(int(others[next_other]) if next_other < len(others) else draft.stop, draft.stop)
    return None if _any_between(training, last, until) else False


def _any_between(rows: Index, begin: int, end: int) -> bool:
    at = int(np.searchsorted(rows, begin))
    return at < len(rows) and int(rows[at]) < end


def _rows_of_phases(trace: Trace, phases: tuple[str, ...]) -> Index:
    codes = [code for code, phase in enumerate(trace.phases) if phase in phases]
    return np.flatnonzero(np.isin(trace.phase, codes))
