"""Makes the page of a run again from its ``verdict.json``, whichever command wrote it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import ReproError
from ddp_repro.report import bisection, survey
from ddp_repro.report.html.measured import is_measured, write_measured_page
from ddp_repro.report.html.page import write_page
from ddp_repro.report.html.tables import Table, write_tables
from ddp_repro.trace.document import read_json
from ddp_repro.trace.layout import RunFolder

_TABLES: Final[Mapping[str, Callable[[dict[str, Any]], list[Table]]]] = {
    bisection.KIND: bisection.bisection_tables,
    survey.KIND: survey.survey_tables,
}


def write_again(run: RunFolder) -> Path:
    """Write ``report.html`` and return its path; raises ``ReproError`` where the run holds no verdict that it knows."""
    verdict = read_json(run.verdict)
    if is_measured(verdict):
        return write_measured_page(run, verdict)
    tables = _TABLES.get(str(verdict.get("kind")))
    if tables is None:
        return write_page(run)
    try:
        return write_tables(run.report, verdict, tables(verdict))
    except (KeyError, TypeError, AttributeError) as error:
        raise ReproError(f"{run.verdict} is no verdict of this version", hint="run the command again") from error
