"""Tells on the terminal what a measuring command found: all from ``verdict.json``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from ddp_repro.report.screen import LABEL_WIDTH, Line, Paragraph, fitted, printable

_LINES: Final = 22
_NARROWEST: Final = 40
_BELOW: Final = 7  # lines that a table leaves for what is told below it
_STYLES: Final = {0: "bold green", 1: "bold red", 2: "bold yellow"}


def print_measured(document: Mapping[str, Any], page: str) -> None:
    """Print the report to stdout; its last line is the verdict alone. ``page`` says what became of ``report.html``."""
    render_measured(document, page, Console(highlight=False))


def render_measured(document: Mapping[str, Any], page: str, console: Console) -> None:
    """Print the report to ``console``."""
    height = max(_LINES, console.height - 2) if console.is_terminal else _LINES
    width = max(console.width - 1, _NARROWEST)
    for line in measured_lines(document, page, width=width, height=height):
        _print(console, f"{line.label:<{LABEL_WIDTH}}{line.text}".rstrip(), line.style)
    _print(console, document["verdict"], _STYLES[document["exit_code"]])


def measured_lines(document: Mapping[str, Any], page: str, *, width: int, height: int) -> list[Line]:
    """Return the lines of the report but the last."""
    style = _STYLES[document["exit_code"]]
    fixed = [
        Paragraph(label="verdict", text=f"{document['verdict']}: {document['meaning']}", style=style),
        _said(document),
    ]
    files = f"{document['folder']}/verdict.json{f' and {page}' if page else ''}, launches beside it"
    lists = [
        [Paragraph(label="problem", text=text) for text in document["problems"][1:]],
        [
            Paragraph(label="warning", text=f"{one['message']}. {one['advice']}", style="yellow")
            for one in document["findings"]
        ],
        [Paragraph(label="note", text=note) for note in document["notes"]],
    ]
    top = fitted(fixed, [], width, height)
    table = _cut(_aligned(document["table"], width - LABEL_WIDTH), height - len(top) - _BELOW)
    where = [Paragraph(label="files", text=files, at_most=3)]
    return [*top, *table, *fitted(where, [one for one in lists if one], width, height - len(top) - len(table))]


def _said(document: Mapping[str, Any]) -> Paragraph:
    if document["problems"]:
        return Paragraph(label="problem", text=document["problems"][0], at_most=5)
    return Paragraph(label="", text=document["sentence"], at_most=5)


def _aligned(table: Mapping[str, Any], room: int) -> list[Line]:
    """Return a table in columns; where they do not fit, each row as a line of pairs."""
    head: Sequence[str] = table["head"]
    rows: Sequence[Sequence[str]] = table["rows"]
    if not rows:
        return []
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    gap = next((size for size in (2, 1) if sum(widths) + size * (len(widths) - 1) <= room), 0)
    if not gap:
        pairs = [", ".join(f"{name} {cell}" for name, cell in zip(head[1:], row[1:], strict=True)) for row in rows]
        named = [Paragraph(label=row[0][: LABEL_WIDTH - 1], text=text) for row, text in zip(rows, pairs, strict=True)]
        return fitted(named, [], room + LABEL_WIDTH, len(rows) * 4)
    return [
        Line(
            label="",
            text=(" " * gap).join(
                cell.ljust(width) if at == 0 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ),
        )
        for row in (head, *rows)
    ]


def _cut(lines: list[Line], room: int) -> list[Line]:
    if len(lines) <= max(room, 2):
        return lines
    kept = lines[: max(room - 1, 1)]
    return [*kept, Line(label="", text=f"{len(lines) - len(kept)} more lines of this table in report.html")]


def _print(console: Console, text: str, style: str) -> None:
    console.print(Text(printable(text), style="" if console.no_color else style), soft_wrap=True)
