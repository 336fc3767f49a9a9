"""The last part of every judging command: load what was recorded, judge it, keep and tell the verdict."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddp_repro.config import PageConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.findings import Variant as Judged
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.page import open_where_wanted, page_told
from ddp_repro.report.html.page import write_page
from ddp_repro.report.html.source import Loaded
from ddp_repro.report.terminal import print_report
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.run.variants import Variant
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import Launch, load_launch
from ddp_repro.trace.layout import LaunchFolder, RunFolder
from ddp_repro.trace.sharing import SharedColumns


def load_launches(folders: Sequence[LaunchFolder]) -> list[Launch]:
    """Return the launches in the order given, numbered from 0."""
    columns = SharedColumns()
    return [replace(load_launch(folder, columns), index=number) for number, folder in enumerate(folders)]


def launch_folders(path: Path) -> list[LaunchFolder]:
    """Return the launches of the run in ``path``, or the one launch that ``path`` is.

    Raises ReproError where there are none.
    """
    if not path.is_dir():
        raise ReproError(f"{path} is not a folder.", hint="Name the folder of a run, such as runs/1.")
    launches = RunFolder(path).launches()
    if launches:
        return launches
    if path.name.startswith("launch-") and LaunchFolder(path).ranks():
        return [LaunchFolder(path)]
    raise ReproError(f"{path} holds no launches.", hint="Name a folder that check or record wrote, such as runs/1.")


def as_judged(variants: Sequence[Variant]) -> tuple[Judged, ...]:
    """Return the variants as the judge knows them."""
    return tuple(Judged(overrides=one.overrides, launches=one.launches, allow=one.allow) for one in variants)


def judge_and_tell(launches: Sequence[Launch], rules: Rules, context: Context, page: PageConfig) -> ExitCode:
    """Judge the launches, write ``verdict.json`` and ``report.html``, print the report, return the verdict's code."""
    return tell(judge(launches, rules), launches, context, page)


def tell(judgement: Judgement, launches: Sequence[Launch], context: Context, page: PageConfig) -> ExitCode:
    """Write ``verdict.json`` and ``report.html``, print the report, and return the verdict's code."""
    write_json(context.run.verdict, verdict_document(judgement, context))
    written = page_told(context.run, page, lambda: write_page(context.run, Loaded.of(launches)))
    print_report(judgement, replace(context, page=written))
    open_where_wanted(context.run, page, written)
    return judgement.verdict.exit_code
