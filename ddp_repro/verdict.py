"""The last part of every judging command: load what was recorded, judge it, keep and tell the verdict."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.report.terminal import print_report
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import Launch, load_launch
from ddp_repro.trace.layout import LaunchFolder, RunFolder


def load_launches(folders: Sequence[LaunchFolder]) -> list[Launch]:
    """Return the launches in the order given, numbered from 0."""
    return [replace(load_launch(folder), index=number) for number, folder in enumerate(folders)]


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


def judge_and_tell(launches: Sequence[Launch], rules: Rules, context: Context) -> ExitCode:
    """Judge the launches, write ``verdict.json``, print the report, and return the verdict's code."""
    return tell(judge(launches, rules), context)


def tell(judgement: Judgement, context: Context) -> ExitCode:
    """Write ``verdict.json``, print the report, and return the verdict's code."""
    write_json(context.run.verdict, verdict_document(judgement, context))
    print_report(judgement, context)
    return judgement.verdict.exit_code
