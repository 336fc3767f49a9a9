"""The last part of every measuring command: keep what was found, draw it, tell it."""

import logging
from collections.abc import Mapping
from typing import Any

from ddp_repro.config import PageConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.report.html.measured import write_measured_page
from ddp_repro.report.html.opening import open_page
from ddp_repro.report.measured import print_measured
from ddp_repro.run.driver import Interrupted
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.layout import RunFolder

_log = logging.getLogger(__name__)


def tell_measured(document: Mapping[str, Any], run: RunFolder, page: PageConfig) -> ExitCode:
    """Write ``verdict.json`` and ``report.html``, print the report, and return the verdict's code."""
    write_json(run.verdict, dict(document))
    written = _page(run, document) if page.html else ""
    print_measured(document, written)
    if page.open and written == run.report.name:
        open_page(run.report)
    return ExitCode(document["exit_code"])


def identity_told(run: RunFolder) -> str:
    """Return the digest of the first launch's identity; empty where no launch came so far."""
    return str(read_json(run.identity).get("digest", "")) if run.identity.is_file() else ""


def _page(run: RunFolder, document: Mapping[str, Any]) -> str:
    """Write the page and return its name, or why there is none: what was measured stands."""
    try:
        return write_measured_page(run, document).name
    except ReproError as error:
        return f"no {run.report.name} ({error})"
    except (Exception, Interrupted) as error:  # noqa: BLE001  no failure here may cost a result that is written
        _log.warning("report.html could not be made", exc_info=error)
        return f"no {run.report.name} ({type(error).__name__})"
