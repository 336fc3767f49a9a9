"""The last part of every measuring command: keep what was found, draw it, tell it."""

from collections.abc import Mapping
from typing import Any

from ddp_repro.config import PageConfig
from ddp_repro.errors import ExitCode
from ddp_repro.page import open_where_wanted, page_told
from ddp_repro.report.html.measured import write_measured_page
from ddp_repro.report.measured import print_measured
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.layout import RunFolder


def tell_measured(document: Mapping[str, Any], run: RunFolder, page: PageConfig) -> ExitCode:
    """Write ``verdict.json`` and ``report.html``, print the report, and return the verdict's code."""
    write_json(run.verdict, dict(document))
    written = page_told(run, page, lambda: write_measured_page(run, document))
    print_measured(document, written)
    open_where_wanted(run, page, written)
    return ExitCode(document["exit_code"])


def identity_told(run: RunFolder) -> str:
    """Return the digest of the first launch's identity; empty where no launch came so far."""
    return str(read_json(run.identity).get("digest", "")) if run.identity.is_file() else ""
