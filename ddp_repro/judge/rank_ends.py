"""Whether ranks end with the parameters that they had after the last step, which were equal on all of them."""

from typing import Final

import numpy as np

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.majority import outside_majority
from ddp_repro.judge.rank_causes import last_digests
from ddp_repro.judge.rows import REPLICATED, in_phases
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_PHASE: Final = "param"


def end_finding(launch: Launch) -> Finding | None:
    """Return a warning on parameters that are equal on all ranks after the last step, and not as the ranks end.

    No step trains on them any more, and a rank may take an average over for its own use: so it is no error.
    """
    ranks = sorted(launch.traces)
    ends = {rank: launch.finals.get(rank, {}).get(_PHASE) for rank in ranks}
    if len(ranks) < 2 or not all(isinstance(end, dict) for end in ends.values()):
        return None
    names = [name for name in _equal_after_the_last_step(launch) if len({ends[rank].get(name) for rank in ranks}) > 1]  # type: ignore[union-attr]
    if not names:
        return None
    odd = outside_majority({rank: repr([ends[rank].get(name) for name in names]) for rank in ranks})[0]  # type: ignore[union-attr]
    place = Place(
        witness="ranks",
        severity="warning",
        launches=(launch.index,),
        step=_last_step(launch.traces[ranks[0]]),
        ranks=odd,
        phase=_PHASE,
        name=names[0],
        names=tuple(names),
    )
    gaps = {"name": names[0], "count": counted(len(names), "parameter"), "odd": numbered("rank", odd)}
    return finding("replica-end", place, gaps)


def _equal_after_the_last_step(launch: Launch) -> list[str]:
    """Return the parameters that must be equal on all ranks, and were after the last step."""
    left = {rank: last_digests(trace, _last_step(trace), _PHASE) for rank, trace in launch.traces.items()}
    first = next(iter(left.values()))
    marked = _replicated(next(iter(launch.traces.values())))
    return [
        name for name, digest in first.items() if name in marked and all(o.get(name) == digest for o in left.values())
    ]


def _last_step(trace: Trace) -> int:
    return int(trace.step[in_phases(trace, (_PHASE,))].max(initial=-1))


def _replicated(trace: Trace) -> set[str]:
    marked = np.isin(trace.spec, [code for code, spec in enumerate(trace.specs) if spec.endswith(REPLICATED)])
    return {trace.names[code] for code in np.unique(trace.name[in_phases(trace, (_PHASE,)) & marked])}
