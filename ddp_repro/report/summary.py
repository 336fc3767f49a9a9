"""Several runs in one table: what each was, its verdict, its first finding and where it lies."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ddp_repro.errors import ExitCode, ReproError, Verdict
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.report.screen import printable
from ddp_repro.report.terminal import VERDICT_STYLES
from ddp_repro.trace.document import read_json, write_json, write_text
from ddp_repro.trace.layout import RunFolder, SummaryFiles

SCHEMA_VERSION: Final = 1
COLUMNS: Final = ("overrides", "verdict", "first finding", "run")
RECORDED: Final = "recorded"
_WORST_FIRST: Final = (ExitCode.DIVERGED, ExitCode.NOT_JUDGED, ExitCode.REPRODUCIBLE)
_STYLES: Final = {verdict.exit_code: style for verdict, style in VERDICT_STYLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: its verdict, or what a measuring command ended with, and the exit code that stands for it.

    ``verdict`` is ``None`` for one that was recorded and not judged. ``first`` is its first finding, or why it was not
    judged, or what was measured.
    """

    overrides: tuple[str, ...]
    verdict: str | None
    code: ExitCode
    first: str
    folder: str

    @property
    def word(self) -> str:
        """Return what stands in the table."""
        return self.verdict or RECORDED


def read_row(folder: Path, overrides: Sequence[str] | None = None) -> Row:
    """Return what a run's ``verdict.json`` says; without one that can be read the run is NOT_JUDGED, and says why."""
    try:
        document = read_json(RunFolder(folder).verdict)
        verdict, code = _ended_with(document)
        first = "" if verdict == Verdict.REPRODUCIBLE else _first(document)
        told = tuple(_overrides(document)) if overrides is None else tuple(overrides)
    except ReproError as error:
        return not_judged_row(folder, overrides or (), str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return not_judged_row(folder, overrides or (), f"its verdict.json is not one of this project ({error!r})")
    return Row(overrides=told, verdict=verdict, code=code, first=first, folder=str(folder))


def not_judged_row(folder: Path, overrides: Sequence[str], why: str) -> Row:
    """Return the row of a run of which nothing is known but why."""
    verdict = Verdict.NOT_JUDGED
    return Row(overrides=tuple(overrides), verdict=verdict.value, code=verdict.exit_code, first=why, folder=str(folder))


def _ended_with(document: dict[str, Any]) -> tuple[str, ExitCode]:
    """Return the word and its code; measuring commands have words of their own."""
    if "kind" in document:
        return str(document["verdict"]), ExitCode(document["exit_code"])
    verdict = Verdict(document["verdict"])
    return verdict.value, verdict.exit_code


def _first(document: dict[str, Any]) -> str:
    """Return the reason of a run that was not judged, or the place and the name of its first error."""
    if document["verdict"] == Verdict.NOT_JUDGED and document["problems"]:
        return str(document["problems"][0])
    if "kind" in document:
        return str(document["sentence"])
    errors = [finding for finding in document["findings"] if finding["severity"] == "error"]
    if not errors:
        return "no reason stands in its verdict.json"
    place = ", ".join(_place(errors[0]))
    return f"{place}{': ' if place else ''}{errors[0]['title']} [{errors[0]['cause']}]"


def _place(finding: dict[str, Any]) -> list[str]:
    step = finding["step"]
    parts = [] if step is None else ["before step 0" if step < 0 else f"step {step}"]
    parts += [numbered("rank", finding["ranks"])] if finding["ranks"] else []
    return [*parts, *(str(finding[key]) for key in ("phase", "name") if finding[key])]


def _overrides(document: dict[str, Any]) -> list[str]:
    """Return the overrides of the command that made a run, without the place that it was written to."""
    words = shlex.split(document["command"])
    return [word for word in words if "=" in word and not word.startswith(("-", "output."))]


def worst(rows: Sequence[Row]) -> ExitCode:
    """Return the worst code: 1, something that was found, before 2, before 0; no rows at all are NOT_JUDGED."""
    codes = [row.code for row in rows]
    return next((code for code in _WORST_FIRST if code in codes), ExitCode.NOT_JUDGED)


def overall(rows: Sequence[Row]) -> str | None:
    """Return the word of the first row with the worst code; ``None`` where all runs were only recorded."""
    words = [row.verdict for row in rows if row.code is worst(rows) and row.verdict is not None]
    return next(iter(words), None if rows else Verdict.NOT_JUDGED.value)


def summary_document(rows: Sequence[Row], command: str) -> dict[str, Any]:
    """Return the content of ``summary.json``, plain JSON types only."""
    return {
        "schema": SCHEMA_VERSION,
        "verdict": overall(rows),
        "exit_code": int(worst(rows)),
        "command": command,
        "runs": [
            {
                "overrides": list(row.overrides),
                "verdict": row.verdict,
                "exit_code": int(row.code),
                "first": row.first,
                "folder": row.folder,
            }
            for row in rows
        ],
    }


def write_summary(files: SummaryFiles, rows: Sequence[Row], command: str) -> None:
    """Write ``summary.json`` and ``summary.md``; raise ReproError where they cannot be."""
    write_json(files.document, summary_document(rows, command))
    write_text(files.table, as_markdown(rows))


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with the counts above it."""
    lines = [f"{_counts(rows)}.", "", f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(_escaped(cell) for cell in cells)} |" for cells in _cells(rows)]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    return "".join(f"\\{sign}" if sign in "\\|`*<>" else sign for sign in printable(cell))


def print_summary(rows: Sequence[Row], files: SummaryFiles | None) -> None:
    """Print the table to stdout, the counts and where it was written; the last line is the worst verdict alone."""
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row, cells in zip(rows, _cells(rows), strict=True):
        style = "" if row.verdict is None or console.no_color else _STYLES[row.code]
        texts = [Text(printable(cell)) for cell in cells]
        texts[1].stylize(style)
        table.add_row(*texts)
    console.print(table)
    written = f"; {files.document} and {files.table.name}" if files else ""
    console.print(Text(printable(f"{_counts(rows)}{written}")), soft_wrap=True)
    verdict = overall(rows)
    if verdict is not None:
        console.print(Text(printable(verdict), style="" if console.no_color else _STYLES[worst(rows)]))


def _counts(rows: Sequence[Row]) -> str:
    counts = Counter(row.word for row in rows)
    return f"{counted(len(rows), 'run')}: " + ", ".join(f"{count} {word}" for word, count in counts.items())


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of each row; of the overrides those that not all runs have, where it has others."""
    known = [set(row.overrides) for row in rows if row.overrides]
    shared = set.intersection(*known) if len(known) > 1 else set()
    own = [[override for override in row.overrides if override not in shared] for row in rows]
    own = [given or list(row.overrides) for given, row in zip(own, rows, strict=True)]
    return [[" ".join(given), row.word, row.first, row.folder] for row, given in zip(rows, own, strict=True)]
