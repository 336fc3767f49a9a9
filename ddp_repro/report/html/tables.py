"""A page of tables: for commands whose result is no comparison of launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddp_repro.report.html.environment import environment, stylesheet
from ddp_repro.report.html.places import COLOURS, EQUAL, SURFACES
from ddp_repro.report.html.telling import cut
from ddp_repro.trace.document import write_text

_VALUE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table; one without rows is not shown."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_tables(path: Path, verdict: Mapping[str, Any], tables: Sequence[Table]) -> Path:
    """Write the page of a verdict and return its path; raises ``ReproError`` where it cannot be written.

    Shown are verdict, ``sentence``, ``problems`` and ``notes``, then the tables.
    """
    shown = [
        Table(title=one.title, head=one.head, rows=[[cut(cell, _VALUE) for cell in row] for row in one.rows])
        for one in tables
        if one.rows
    ]
    page = (
        environment()
        .get_template("tables.html.j2")
        .render(
            verdict=verdict,
            tables=shown,
            style=stylesheet(),
            surfaces=SURFACES,
            equal=EQUAL,
            colours=COLOURS,
        )
    )
    write_text(path, page)
    return path
