"""What a launch that goes on from a checkpoint did not get back, by the names of what its first step started from."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.comparison import Divergence
from ddp_repro.judge.divergence import LaunchDivergence
from ddp_repro.judge.drawn import owner_of
from ddp_repro.judge.findings import Finding, Severity
from ddp_repro.judge.passes import split_name
from ddp_repro.judge.resumption import Sides
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.trace.reader import Trace

_COPY: Final = "copy."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One kind of state: in which phase it shows and which of the names there are its own."""

    cause: str
    phase: str
    is_of: Callable[[str], bool]


def _hyperparameter(name: str) -> bool:
    return name.startswith("optimizer.group")


# In the order in which they are told: what tells most of what went wrong comes first.
_ITEMS: Final = (
    _Item(cause="restored-position", phase="data", is_of=lambda name: not _is_content(name)),
    _Item(cause="restored-generator", phase="rng", is_of=lambda _: True),
    _Item(cause="restored-scheduler", phase="boundary", is_of=lambda name: name.startswith("scheduler.")),
    _Item(cause="restored-scaler", phase="boundary", is_of=lambda name: name.startswith("scaler.")),
    _Item(
        cause="restored-optimizer",
        phase="boundary",
        is_of=lambda name: name.startswith("optimizer.") and not _hyperparameter(name),
    ),
    _Item(cause="restored-settings", phase="boundary", is_of=_hyperparameter),
    _Item(cause="restored-copy", phase="boundary", is_of=lambda name: name.startswith(_COPY)),
    _Item(cause="restored-parameters", phase="boundary", is_of=lambda name: name.startswith("param.")),
)


def _is_content(name: str) -> bool:
    parts = split_name(name)
    return parts is not None and parts[1].startswith("batch")


def restored_findings(both: Sides, found: LaunchDivergence) -> list[Finding]:
    """Return a finding for each kind of state with which the first resumed step does not start as it should.

    Empty where the launches differ at a later step, or in nothing that the step starts from.
    """
    first = {rank: one for rank, one in found.by_rank.items() if one.step == both.begins}
    told = [finding for item in _ITEMS for finding in _of_item(both, item, first)]
    return told or list(_consequences(both, first))


def begun_anew(both: Sides, step: int) -> Finding:
    """Return the finding on a launch that should go on from ``step`` and has the parameters of the very beginning."""
    names = [name for trace in both.resumed.traces.values() for name in trace.names if name.startswith("param.")]
    names = list(dict.fromkeys(names)) or [""]
    item = _Item(cause="begun-anew", phase="boundary", is_of=lambda _: True)
    found = _told(both, item, dict.fromkeys(both.resumed.traces, names))
    return replace(found, step=step)


def idle_generators(both: Sides) -> Iterator[Finding]:
    """Yield a warning on generators that did not get their states back and that nothing drew from after that."""
    if both.idle:
        item = _Item(cause="idle-generator", phase="rng", is_of=lambda _: True)
        yield _told(both, item, {rank: list(names) for rank, names in both.idle.items()}, severity="warning")


def _of_item(both: Sides, item: _Item, first: Mapping[int, Divergence]) -> Iterator[Finding]:
    names = {rank: [name for name in one.names.get(item.phase, ()) if item.is_of(name)] for rank, one in first.items()}
    if any(names.values()):
        yield _told(both, item, names)


def _telling(both: Sides, rank: int) -> Callable[[str], bool]:
    """Return a sort key by which what tells most comes first: an epoch that both know, else the indices."""
    epochs = [_epoch(launch.traces[rank], both.begins) for launch in (both.straight, both.resumed)]
    first = ".index" if None in epochs or epochs[0] == epochs[1] else ".epoch"
    return lambda name: not name.endswith(first)


def _place(both: Sides, item: _Item, ranks: list[int], names: list[str], severity: Severity) -> Place:
    return Place(
        witness="twins",
        severity=severity,
        launches=(both.straight.index, both.resumed.index),
        step=both.begins,
        ranks=tuple(ranks),
        phase=item.phase,
        name=names[0],
        names=tuple(names),
    )


def _gaps(both: Sides, cause: str, ranks: list[int], names: list[str]) -> dict[str, str]:
    return {
        "step": str(both.begins),
        "names": listed(_plain(name) for name in names),
        "name": _plain(names[0]),
        "where": _where(both, ranks),
        "library": listed(dict.fromkeys(_library(name) for name in names)),
        "position": _position(both, ranks[0], names) if cause == "restored-position" else "",
    }


def _plain(name: str) -> str:
    return name.partition(".")[2] if name.startswith(("optimizer.", "param.", "scaler.", "scheduler.", _COPY)) else name


def _library(name: str) -> str:
    parts = split_name(name)
    if parts is None:
        return name + owner_of(name)
    own = parts[1].removeprefix("main.").removesuffix(".before").removesuffix(".after")
    return f"{own} ({parts[0]})"


def _where(both: Sides, ranks: list[int]) -> str:
    """Return on which ranks, where it is not on all of them; on all but rank 0 points to what only rank 0 saved."""
    every = sorted(both.resumed.traces)
    if ranks == every:
        return ""
    others = " (rank 0 alone got its own back)" if ranks == every[1:] else ""
    return f" on {numbered('rank', ranks)}{others}"


def _position(both: Sides, rank: int, names: list[str]) -> str:
    """Return whose samples the first resumed batch holds, where the uninterrupted launch had them somewhere else."""
    epochs = [name for name in names if name.endswith(".epoch")]
    resumed, whole = both.resumed.traces[rank], both.whole.traces[rank]
    said = [_epoch(trace, both.begins) for trace in (both.straight.traces[rank], resumed)]
    if epochs and None not in said:
        return f"; its epoch is {said[1]:.0f} and should be {said[0]:.0f}"
    mine = _batch(resumed, both.begins)
    later = next((int(step) for step in np.unique(whole.step) if len(mine) and _batch(whole, int(step)) == mine), None)
    if later is not None:
        return f"; its first batch is that of step {later}, and should be that of step {both.begins}"
    return f"; its first batch has {counted(len(mine), 'sample')} of another order or place"


def _epoch(trace: Trace, step: int) -> float | None:
    codes = [code for code, name in enumerate(trace.names) if name.endswith(".epoch")]
    rows = np.flatnonzero((trace.step == step) & np.isin(trace.name, codes))
    return float(trace.value[rows[-1]]) if len(rows) else None


def _batch(trace: Trace, step: int) -> list[bytes]:
    codes = [code for code, name in enumerate(trace.names) if (split_name(name) or ("", ""))[1] == "index"]
    rows = np.flatnonzero((trace.step == step) & np.isin(trace.name, codes))
    return [trace.digest[row].tobytes() for row in rows]


def _consequences(both: Sides, first: Mapping[int, Divergence]) -> Iterator[Finding]:
    """Yield what differs in the first resumed step though all that was named above is equal."""
    content = {rank: [n for n in one.names.get("data", ()) if _is_content(n)] for rank, one in first.items()}
    buffers = {rank: list(one.names.get("buffer", ())) for rank, one in first.items() if one.phase == "buffer"}
    reduced = {rank: list(one.names.get("grad_reduced", ())) for rank, one in first.items()}
    if any(content.values()):
        yield _told(both, _Item(cause="restored-draws", phase="data", is_of=_is_content), content)
    elif any(buffers.values()):
        yield _told(both, _Item(cause="restored-buffers", phase="buffer", is_of=lambda _: True), buffers)
    elif both.other_layout and all(one.phase == "grad_reduced" for one in first.values()) and any(reduced.values()):
        yield _told(both, _Item(cause="bucket-layout", phase="grad_reduced", is_of=lambda _: True), reduced)


def _told(both: Sides, item: _Item, names: Mapping[int, list[str]], severity: Severity = "error") -> Finding:
    ranks = [rank for rank, own in names.items() if own]
    own = list(dict.fromkeys(name for rank in ranks for name in names[rank]))
    if item.phase == "data":
        own.sort(key=_telling(both, ranks[0]))
    return finding(item.cause, _place(both, item, ranks, own, severity), _gaps(both, item.cause, ranks, own))
