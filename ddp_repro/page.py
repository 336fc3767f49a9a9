"""The picture beside every verdict: written and opened where that is wanted, and never at the cost of the verdict."""

import logging
from collections.abc import Callable

from ddp_repro.config import PageConfig
from ddp_repro.errors import ReproError
from ddp_repro.report.html.opening import open_page
from ddp_repro.run.driver import Interrupted
from ddp_repro.trace.layout import RunFolder

_log = logging.getLogger(__name__)


def page_told(run: RunFolder, page: PageConfig, write: Callable[[], object]) -> str:
    """Have ``report.html`` written; return its name, or why there is none, or nothing where none is wanted."""
    if not page.html:
        return ""
    try:
        write()
    except ReproError as error:
        return f"no {run.report.name} ({error})"
    except (Exception, Interrupted) as error:  # noqa: BLE001  no failure here may cost a verdict that is written
        _log.warning("report.html could not be made", exc_info=error)
        told = str(error).partition("\n")[0]
        return f"no {run.report.name} ({type(error).__name__}{f': {told}' if told else ''})"
    return run.report.name


def open_where_wanted(run: RunFolder, page: PageConfig, told: str) -> None:
    """Open the page of which ``told`` says that it was written."""
    if page.open and told == run.report.name:
        open_page(run.report)
