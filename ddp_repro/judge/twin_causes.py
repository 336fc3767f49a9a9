"""What a difference between variants points to, where between launches of the same thing it would be chance."""

from collections.abc import Mapping
from typing import Final

from ddp_repro.judge.data_causes import content_cause
from ddp_repro.judge.evidence import Evidence, Told
from ddp_repro.judge.identity import fields_of
from ddp_repro.trace.launch import Launch

_OPERATORS: Final = (
    "forward-inputs", "forward-operator", "backward-operator", "gradient", "gradient-processing", "optimizer",
)  # fmt: skip


def twin_cause(evidence: Evidence, cause: str, gaps: Mapping[str, str]) -> Told:
    """Return the cause between variants for one that was found as between launches.

    What nobody seeded, or an operator that is not deterministic, would show between launches of one variant as well.
    """
    if cause in _OPERATORS and _threads_differ(evidence):
        return "thread-count", gaps
    if cause == "backward-operator":
        return "recomputation", gaps
    if cause == "unseeded-library":
        return content_cause(evidence)
    return cause, gaps


def _threads_differ(evidence: Evidence) -> bool:
    """Return whether the ranks had another number of threads, or the scripts were asked for another one."""
    one, other = (_threads(launch, evidence.rank) for launch in (evidence.a, evidence.b))
    return one != other


def _threads(launch: Launch, rank: int) -> dict[str, object]:
    fields = fields_of(launch.identities.get(rank, {}))
    return {name: value for name, value in fields.items() if "thread" in f"{name} {value}".lower()}
