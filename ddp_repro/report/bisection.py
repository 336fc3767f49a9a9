"""Tells the result of a search: ``verdict.json``, the terminal, and a page."""

from collections.abc import Sequence
from typing import Any

from ddp_repro.judge.bisection import Answer, Bisection
from ddp_repro.judge.wording import counted, listed
from ddp_repro.report.html.tables import Table
from ddp_repro.report.screen import Paragraph
from ddp_repro.report.terminal import place, print_line, print_paragraphs
from ddp_repro.report.verdict import finding_document
from ddp_repro.trace.layout import RunFolder

SCHEMA = "bisect/1"
KIND = "bisect"


def print_outcome(line: str) -> None:
    """Print to stderr what one outcome came to."""
    print_line(line)


def bisection_document(bisection: Bisection, run: RunFolder, command: str) -> dict[str, Any]:
    """Return the content of ``verdict.json``, plain JSON types only."""
    finding = bisection.finding
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "verdict": bisection.verdict.value,
        "exit_code": int(bisection.verdict.exit_code),
        "command": command,
        "level": "same-stack",
        "folder": str(run.path),
        "sentence": bisection.sentence,
        "identity": {"digest": bisection.identity, "differences": []},
        "problems": list(bisection.problems),
        "findings": [finding_document(finding, {})] if finding is not None else [],
        "notes": list(bisection.notes),
        "culprits": [
            {
                "name": one.name,
                "overrides": list(one.overrides),
                "cost": one.cost,
                "together": list(one.together),
            }
            for one in bisection.culprits
        ],
        "confidence": bisection.confidence,
        "rarest": bisection.rarest,
        "outcomes": [_answer(one, run) for one in bisection.answers],
        "left_out": bisection.left_out,
        "reproduce": {"diverging": bisection.diverging, "equal": bisection.equal},
    }


def bisection_tables(document: dict[str, Any]) -> list[Table]:
    """Return what a page shows of a search."""
    return [
        Table(
            title="What must be off",
            head=("suspect", "what switches it off", "what it costs to keep off", "diverges only together with"),
            rows=[
                (one["name"], " ".join(one["overrides"]), one["cost"], ", ".join(one["together"]))
                for one in document["culprits"]
            ],
        ),
        Table(
            title="How sure", head=("of what showed as often as was seen", "what else shows"), rows=_sure_row(document)
        ),
        Table(
            title="How to see it",
            head=("", "command"),
            rows=[pair for pair in document["reproduce"].items() if pair[1]],
        ),
        Table(
            title="Where it shows with nothing off",
            head=("cause", "place", "what was found", "what to change"),
            rows=[
                (one["title"] or one["cause"], _placed(one), one["message"], one["advice"])
                for one in document["findings"]
            ],
        ),
        Table(
            title="Outcomes",
            head=("", "off", "outcome", "launches", "showed at least in", "folder"),
            rows=[_outcome_row(one) for one in document["outcomes"]],
        ),
        Table(title="No suspects here", head=("", "why"), rows=list(document["left_out"].items())),
    ]


def print_bisection(bisection: Bisection, run: RunFolder, page: str) -> None:
    """Print the report to stdout; its last line is the verdict alone. ``page`` says what became of ``report.html``."""
    fixed = [
        Paragraph(label="verdict", text=f"{bisection.verdict.value}: {bisection.sentence}", style="bold", at_most=5),
        *(_culprit(one) for one in bisection.culprits),
        *_sure(bisection),
    ]
    if bisection.finding is not None:
        shows = f"{place(bisection.finding, {})}: {bisection.finding.title or bisection.finding.cause}"
        fixed.append(Paragraph(label="shows in", text=shows, at_most=3))
    fixed += [Paragraph(label="note", text=note) for note in bisection.notes]
    commands = {"diverges": bisection.diverging, "equal": bisection.equal}
    fixed += [Paragraph(label=label, text=text, at_most=4) for label, text in commands.items() if text]
    beside = f" and {page}" if page else ""
    fixed.append(Paragraph(label="files", text=f"{run.verdict}{beside}, launches in outcome-<i> beside it", at_most=2))
    by_reason: dict[str, list[str]] = {}
    for name, why in bisection.left_out.items():
        by_reason.setdefault(why, []).append(name)
    lists = [
        [Paragraph(label="" if at else "outcomes", text=_answered(one)) for at, one in enumerate(bisection.answers)],
        [
            Paragraph(label="" if at else "left out", text=f"{listed(names, at_most=20)}: {why}")
            for at, (why, names) in enumerate(by_reason.items())
        ],
    ]
    print_paragraphs(fixed, lists, bisection.verdict)


def _culprit(one: Any) -> Paragraph:
    cost = f"; it costs {one.cost}" if one.cost else ""
    return Paragraph(label="change", text=f"{one.name}: {' '.join(one.overrides)}{cost}", at_most=3)


def _sure(bisection: Bisection) -> list[Paragraph]:
    if bisection.confidence is None or bisection.rarest is None:
        return []
    text = (
        f"{bisection.confidence:.1%} sure against what shows as often as was seen; what shows in "
        f"{bisection.rarest:.0%} of launches or more would have been seen, what is rarer perhaps not"
    )
    return [Paragraph(label="sure", text=text, at_most=3)]


def _sure_row(document: dict[str, Any]) -> list[tuple[str, str]]:
    if document["confidence"] is None:
        return []
    rare = f"in {document['rarest']:.0%} of launches or more would have been seen, more rarely perhaps not"
    return [(f"{document['confidence']:.1%}", rare)]


def _outcome_row(one: dict[str, Any]) -> tuple[str, ...]:
    outcome = one["outcome"] + (f": {one['why']}" if one["why"] else "")
    off = ", ".join(one["off"]) or "nothing"
    return str(one["number"]), off, outcome, str(one["launches"]), str(one["shown"]), one["folder"]


def _answered(one: Answer) -> str:
    off = f"{', '.join(one.off)} off" if one.off else "as it is"
    showed = f", showed at least in {one.shown}" if one.shown else ""
    why = f": {one.why}" if one.why else ""
    return f"{off}: {one.outcome.value} ({counted(one.launches, 'launch')}{showed}){why}"


def _answer(one: Answer, run: RunFolder) -> dict[str, Any]:
    return {
        "number": one.number,
        "off": list(one.off),
        "outcome": one.outcome.value,
        "launches": one.launches,
        "shown": one.shown,
        "why": one.why,
        "folder": str(run.outcome(one.number).path),
    }


def _placed(finding: dict[str, Any]) -> str:
    keys: Sequence[str] = ("step", "phase", "name", "operator", "source")
    return ", ".join(f"{key} {finding[key]}" for key in keys if finding[key] not in (None, ""))
