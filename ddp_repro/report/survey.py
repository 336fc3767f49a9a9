"""Tells what a survey came to: ``verdict.json``, the terminal, and a page."""

import glob
from typing import Any

from ddp_repro.judge.survey import Kind, Offender, Surveyed
from ddp_repro.judge.wording import counted
from ddp_repro.report.html.tables import Table
from ddp_repro.report.screen import Paragraph
from ddp_repro.report.terminal import print_paragraphs
from ddp_repro.trace.layout import RunFolder

SCHEMA = "survey/1"
KIND = "survey"


def survey_document(surveyed: Surveyed, run: RunFolder, command: str) -> dict[str, Any]:
    """Return the content of ``verdict.json``, plain JSON types only."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "verdict": surveyed.verdict.value,
        "exit_code": int(surveyed.verdict.exit_code),
        "command": command,
        "level": "same-stack",
        "identity": {"digest": surveyed.identity, "differences": []},
        "folder": str(run.path),
        "sentence": surveyed.sentence,
        "problems": list(surveyed.problems),
        "operators": surveyed.operators,
        "calls": surveyed.calls,
        "offenders": [_offender(one) for one in surveyed.offenders],
        "notes": list(surveyed.notes),
    }


def survey_tables(document: dict[str, Any]) -> list[Table]:
    """Return what a page shows of a survey: a table for each reason to be listed, and one of what is accepted."""
    head = ("operator", "place", "calls", "differed", "what PyTorch says", "what to do")
    groups = [
        (str(kind), [one for one in document["offenders"] if one["kind"] == kind and not one["accepted"]])
        for kind in Kind
    ]
    groups.append(("Accepted", [one for one in document["offenders"] if one["accepted"]]))
    return [
        Table(title=title[:1].upper() + title[1:], head=head, rows=[_row(one) for one in ones])
        for title, ones in groups
    ]


def print_survey(surveyed: Surveyed, run: RunFolder, page: str) -> None:
    """Print the report to stdout; its last line is the verdict alone. ``page`` says what became of ``report.html``."""
    beside = f" and {page}" if page else ""
    fixed = [
        Paragraph(label="verdict", text=f"{surveyed.verdict.value}: {surveyed.sentence}", style="bold", at_most=5),
        Paragraph(label="files", text=f"{run.verdict}{beside}", at_most=2),
    ]
    new = [one for one in surveyed.offenders if not one.accepted]
    lists = [
        [paragraph for one in new for paragraph in _told(one)],
        [Paragraph(label="accepted", text=_called(one)) for one in surveyed.offenders if one.accepted],
        [Paragraph(label="note", text=note) for note in surveyed.notes],
    ]
    print_paragraphs(fixed, lists, surveyed.verdict)


def _told(one: Offender) -> list[Paragraph]:
    told = [Paragraph(label="operator", text=_called(one), style="bold")]
    told.append(Paragraph(label="", text=f"{one.kind}: {_seen(one)}", at_most=3))
    if one.says:
        told.append(Paragraph(label="torch says", text=one.says, at_most=3))
    return [*told, Paragraph(label="change", text=one.advice, at_most=3)]


def _called(one: Offender) -> str:
    seen = one.seen
    where = f" of {seen.module}" if seen.module else ""
    part = "outside of modules and backward" if seen.part == "forward" and not seen.module else f"in the {seen.part}"
    by = f" ({seen.node})" if seen.node else ""
    return f"{seen.operator}{where} {part}, {seen.source or 'no line of yours'}{by}"


def _seen(one: Offender) -> str:
    if not one.compared:
        return f"{counted(one.seen.calls, 'call')}, none of which could be made again"
    differed = f"differed in {one.differed}" if one.differed else "not seen to differ"
    return f"{differed} of {counted(one.compared, 'call')} that were made again on the same inputs"


def _offender(one: Offender) -> dict[str, Any]:
    seen = one.seen
    return {
        "kind": one.kind.value,
        "operator": seen.operator,
        "module": seen.module or None,
        "source": seen.source or None,
        "part": seen.part,
        "node": seen.node or None,
        "calls": seen.calls,
        "compared": one.compared,
        "differed": one.differed,
        "says": one.says,
        "advice": one.advice,
        "accept": glob.escape(f"{seen.operator}@{seen.source}"),
        "accepted": one.accepted or None,
    }


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    place = ", ".join(part for part in (one["module"], one["part"], one["source"]) if part)
    return one["operator"], place, str(one["calls"]), str(one["differed"]), one["says"], one["advice"]
