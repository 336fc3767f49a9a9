"""``verdict.json``: everything that was found, for machines; docs/verdict.md explains each key."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ddp_repro.judge.as_compared import stretches_told
from ddp_repro.judge.findings import FieldDifference, Finding, GoldenOutcome, Judgement, Variant
from ddp_repro.judge.nodes import Nodes, in_document
from ddp_repro.judge.resume_judgement import Stretch
from ddp_repro.trace.layout import RunFolder

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a report says besides the judgement: the run's folder, the command and the level it was held to.

    ``ignore`` and ``stretches`` tell how launches were compared, for who compares them again; ``page`` what became of
    ``report.html``, empty where none was asked for.
    """

    run: RunFolder
    command: str
    level: str = "same-stack"
    ignore: Sequence[str] = ()
    stretches: Sequence[Stretch] = ()
    page: str = ""


def verdict_document(judgement: Judgement, context: Context) -> dict[str, Any]:
    """Return the content of ``verdict.json``, plain JSON types only."""
    return {
        "schema": SCHEMA_VERSION,
        "verdict": judgement.verdict.value,
        "exit_code": int(judgement.verdict.exit_code),
        "command": context.command,
        "level": context.level,
        "folder": str(context.run.path),
        "launches": [{"launch": number, "folder": folder} for number, folder in judgement.folders.items()],
        "observations": judgement.observations,
        "classes": judgement.classes,
        "identity": {
            "digest": judgement.identity,
            "differences": [_difference(difference) for difference in judgement.identity_differences],
        },
        "problems": judgement.problems,
        "findings": [finding_document(finding, judgement.nodes) for finding in judgement.findings],
        "notes": judgement.notes,
        "ended_early": [{**asdict(one), "ranks": list(one.ranks)} for one in judgement.ended],
        "chance": None if judgement.chance is None else asdict(judgement.chance),
        "variants": [_variant(variant) for variant in judgement.variants],
        "ignore": list(context.ignore),
        "stretches": stretches_told(context.stretches),
        "nodes": in_document(judgement.nodes),
        "golden": None if judgement.golden is None else _golden(judgement.golden),
    }


def _golden(outcome: GoldenOutcome) -> dict[str, Any]:
    made, now = outcome.code
    return {
        **asdict(outcome),
        "moved": [_difference(one) for one in outcome.moved],
        "unused": list(outcome.unused),
        "code": {"golden": made, "now": now},
    }


def _variant(variant: Variant) -> dict[str, Any]:
    return {
        "overrides": list(variant.overrides),
        "launches": list(variant.launches),
        "allow": list(variant.allow),
    }


def _difference(difference: FieldDifference) -> dict[str, Any]:
    return {"field": difference.field, "values": difference.values, "allowed": difference.allowed}


def finding_document(finding: Finding, nodes: Nodes) -> dict[str, Any]:
    """Return a finding as it stands in ``verdict.json``; of several ``nodes``, with those of its ranks."""
    return {
        **asdict(finding),
        "launches": list(finding.launches),
        "ranks": list(finding.ranks),
        **({"nodes": sorted({nodes[rank][0] for rank in finding.ranks if rank in nodes})} if nodes else {}),
        "names": list(finding.names),
        "phase": finding.phase or None,
        "name": finding.name or None,
    }
