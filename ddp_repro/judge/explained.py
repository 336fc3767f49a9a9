"""Rows that an allowed difference of the identities explains: they describe the difference, not what came of it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ddp_repro.judge.findings import FieldDifference
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace

_NUMBER_OF_WORKERS: Final = "experiment.config.data.num_workers"
_OF_WORKERS: Final = re.compile(r".+\[\d+\]\.(num_workers|worker\d+\..+|main\..+)", re.DOTALL)

WORKERS_NOT_COMPARED: Final = (
    "the number of loader workers may differ: the batches were compared, the workers' own generators were not"
)


def without_explained(
    launches: Sequence[Launch], differences: Sequence[FieldDifference]
) -> tuple[list[Launch], list[str]]:
    """Return the launches without rows that allowed differences explain, and a note on what was left out.

    Where the number of loader workers may differ, that is the number itself and the states of each worker's
    generators, which exist once a worker; the batches that they deliver stay.
    """
    if not any(one.allowed and one.field == _NUMBER_OF_WORKERS for one in differences):
        return list(launches), []
    return [_without_workers(launch) for launch in launches], [WORKERS_NOT_COMPARED]


def _without_workers(launch: Launch) -> Launch:
    return replace(launch, traces={rank: _without(trace) for rank, trace in launch.traces.items()})


def _without(trace: Trace) -> Trace:
    left_out = np.array([_OF_WORKERS.fullmatch(name) is not None for name in trace.names], dtype=np.bool_)
    kept = ~left_out[trace.name] if len(trace) else np.zeros(0, np.bool_)
    columns = ("step", "seq", "phase", "name", "spec", "digest", "value", "valid")
    return replace(trace, **{column: getattr(trace, column)[kept] for column in columns})
