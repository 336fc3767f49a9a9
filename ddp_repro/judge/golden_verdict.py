"""The verdict where launches were held against a golden as well."""

from dataclasses import replace
from pathlib import Path

from ddp_repro.errors import Verdict
from ddp_repro.judge.findings import Finding, GoldenOutcome, Judgement
from ddp_repro.judge.judgement import ordered
from ddp_repro.judge.wording import counted, listed


def concluded(judgement: Judgement, outcome: GoldenOutcome, found: Finding | None, reproduce: str) -> Judgement:
    """Return the judgement on sound launches, with what became of their golden.

    That it did not match is a reason not to judge, unless a difference or a broken invariant was found.
    """
    findings = ordered([*judgement.findings, *([found] if found else [])], reproduce)
    notes = list(judgement.notes)
    if outcome.unused:
        names = listed(Path(file).name for file in outcome.unused)
        notes.append(f"unused: {counted(len(outcome.unused), 'other golden')} in {outcome.path} ({names})")
    verdict, problems = Verdict.REPRODUCIBLE, list[str]()
    if any(one.severity == "error" for one in findings):
        verdict = Verdict.DIVERGED
        notes += [] if found or outcome.state == "matched" else [outcome.told]
    elif outcome.state != "matched":
        verdict, problems = Verdict.NOT_JUDGED, [outcome.told]
    told = replace(judgement, verdict=verdict, problems=problems, findings=findings, notes=notes, golden=outcome)
    return told if verdict is Verdict.REPRODUCIBLE else replace(told, chance=None)
