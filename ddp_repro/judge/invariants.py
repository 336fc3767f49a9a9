"""What must hold within one launch, whatever another launch did."""

from collections.abc import Sequence
from dataclasses import replace

from ddp_repro.judge.agreement import ranks_finding
from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.draws import worker_draws
from ddp_repro.judge.epochs import epoch_findings
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.guards import guard_findings
from ddp_repro.judge.identity import differing_on_ranks, is_named, label
from ddp_repro.judge.majority import outside_majority
from ddp_repro.judge.noise import noise_findings
from ddp_repro.judge.opaque import opaque_notes
from ddp_repro.judge.passes import passes_of
from ddp_repro.judge.rank_ends import end_finding
from ddp_repro.judge.replication import replication_findings
from ddp_repro.judge.resolved import resolved_findings
from ddp_repro.judge.shards import shard_findings
from ddp_repro.judge.stream_epochs import stream_findings
from ddp_repro.judge.wording import listed, told_by_rank
from ddp_repro.trace.launch import Launch

_GROUPS = (
    ("software", "software-differs"),
    ("environment", "environment-differs"),
    ("experiment", "config-differs"),
    ("hardware", "hardware-differs"),
)


def launch_findings(launch: Launch, *, before: int | None = None) -> tuple[list[Finding], list[str]]:
    """Return what is wrong within a launch, worst witness first, and notes on what is harmless.

    ``before`` bounds the steps over which ranks are compared, where the traces are not whole.
    """
    passes = [one for rank in sorted(launch.traces) for one in passes_of(launch.traces[rank])]
    world_size = launch.record.world_size if launch.record else len(launch.traces)
    shards, notes = shard_findings(launch.index, passes, world_size)
    replicated, more = replication_findings(launch.index, launch.traces, passes)
    orders = [
        *epoch_findings(launch.index, passes),
        *stream_findings(launch.index, launch.traces, passes),
    ]
    guarded, mended = guard_findings(launch.index, launch.traces, orders)
    disagreement = ranks_finding(launch, before=before)
    ends = end_finding(launch) if before is None else None
    return [
        *identity_findings(launch),
        *resolved_findings(launch),
        *([disagreement] if disagreement else []),
        *([ends] if ends and not disagreement else []),
        *shards,
        *replicated,
        *orders,
        *guarded,
        *worker_draws(launch.index, launch.traces, passes),
        *noise_findings(launch.index, launch.traces, passes),
    ], [*notes, *more, *mended, *opaque_notes(launch.traces.values())]


def identity_findings(launch: Launch) -> list[Finding]:
    """Return a finding for each group of the identity in which the ranks of one launch differ."""
    findings = []
    for group, cause in _GROUPS:
        differing = differing_on_ranks(launch, group)
        if not differing:
            continue
        first = next(iter(differing))
        place = Place(
            witness="invariants",
            severity="warning" if _is_harmless(group, list(differing)) else "error",
            launches=(launch.index,),
            ranks=_odd(differing[first]),
            name=first,
            names=tuple(differing),
        )
        findings.append(finding(cause, place, {"fields": listed(_told(differing))}))
    return findings


def as_allowed(found: Finding, allow: Sequence[str]) -> Finding:
    """Return a finding; as a warning, where it is of ranks whose identities differ in what may differ alone."""
    is_of_identity = found.witness == "invariants" and found.cause in {cause for _, cause in _GROUPS}
    if is_of_identity and found.step is None and all(is_named(name, allow) for name in found.names):
        return replace(found, severity="warning")
    return found


def _is_harmless(group: str, differing: Sequence[str]) -> bool:
    """Return whether the ranks may differ so: in hardware, and in the data that each holds of its own."""
    return group == "hardware" or all(name.startswith("experiment.data.") for name in differing)


def _told(differing: dict[str, dict[int, object]]) -> Sequence[str]:
    return [f"{label(name)} {told_by_rank(values)}" for name, values in differing.items()]


def _odd(values: dict[int, object]) -> tuple[int, ...]:
    texts = {rank: repr(value) for rank, value in values.items()}
    return outside_majority(texts)[0]
