"""Tells a judgement on the terminal, in one screen; everything it says also stands in ``verdict.json``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from ddp_repro.errors import ReproError, Verdict
from ddp_repro.judge.chance import in_words
from ddp_repro.judge.findings import Distance, Finding, GoldenOutcome, Judgement
from ddp_repro.judge.nodes import Nodes, on_nodes
from ddp_repro.judge.wording import counted, listed, numbered
from ddp_repro.report.screen import LABEL_WIDTH, Line, Paragraph, fitted, printable
from ddp_repro.report.verdict import Context
from ddp_repro.trace.launch import Launch

_LINES: Final = 22  # of 24: the verdict's own line and the prompt follow
_NARROWEST: Final = 40
VERDICT_STYLES: Final = {
    Verdict.REPRODUCIBLE: "bold green",
    Verdict.DIVERGED: "bold red",
    Verdict.NOT_JUDGED: "bold yellow",
}
_MEANING: Final = {
    Verdict.REPRODUCIBLE: "every observation was there and equal, and no invariant was broken",
    Verdict.DIVERGED: "a difference or a broken invariant was found",
    Verdict.NOT_JUDGED: "nothing could be concluded",
}


def print_report(judgement: Judgement, context: Context) -> None:
    """Print the report to stdout; its last line is the verdict alone."""
    render(judgement, context, Console(highlight=False))


def print_error(error: ReproError) -> None:
    """Print what is wrong and what to do next to stderr."""
    console = Console(stderr=True, highlight=False)
    _print(console, f"error: {error}", "bold red")
    if error.hint:
        _print(console, error.hint, "")


def print_verdict(verdict: Verdict) -> None:
    """Print the verdict alone to stdout."""
    _print(Console(highlight=False), verdict.value, VERDICT_STYLES[verdict])


def print_recorded(launch: Launch) -> None:
    """Print to stdout what a recorded launch holds and where."""
    rows = sum(len(trace) for trace in launch.traces.values())
    told = f"recorded {counted(rows, 'observation')} of {counted(len(launch.traces), 'rank')} in {launch.path}"
    _print(Console(highlight=False), told, "")


def print_heading(text: str) -> None:
    """Print to stdout which of several runs follows."""
    _print(Console(highlight=False), text, "bold")


def print_written(path: Path) -> None:
    """Print to stdout which file was written."""
    _print(Console(highlight=False), f"wrote {path}", "")


def print_line(text: str) -> None:
    """Print a line to stderr, of a command that is under way."""
    _print(Console(stderr=True, highlight=False), text, "")


def print_paragraphs(fixed: Sequence[Paragraph], lists: Sequence[Sequence[Paragraph]], verdict: Verdict) -> None:
    """Print a report to stdout, its lists cut to the screen; its last line is the verdict alone."""
    console = Console(highlight=False)
    for line in fitted(fixed, lists, _width(console), _height(console)):
        _print(console, f"{line.label:<{LABEL_WIDTH}}{line.text}".rstrip(), line.style)
    print_verdict(verdict)


def render(judgement: Judgement, context: Context, console: Console) -> None:
    """Print the report to ``console``, without markup, and plain where it is no terminal or ``NO_COLOR`` is set."""
    for line in report_lines(judgement, context, width=_width(console), height=_height(console)):
        _print(console, f"{line.label:<{LABEL_WIDTH}}{line.text}".rstrip(), line.style)
    _print(console, judgement.verdict.value, VERDICT_STYLES[judgement.verdict])


def _width(console: Console) -> int:
    return max(console.width - 1, _NARROWEST)


def _height(console: Console) -> int:
    return max(_LINES, console.height - 2) if console.is_terminal else _LINES


def report_lines(judgement: Judgement, context: Context, *, width: int, height: int) -> list[Line]:
    """Return the lines of the report but the last: what matters most first, lists cut to ``height`` lines."""
    errors = [finding for finding in judgement.findings if finding.severity == "error"]
    warnings = [finding for finding in judgement.findings if finding.severity == "warning"]
    fixed = [_headline(judgement)]
    if errors:
        fixed += _first(errors[0], judgement.nodes)
    fixed += [Paragraph(label="problem", text=text, at_most=4) for text in judgement.problems[:1]]
    fixed += _where(judgement, context)
    lists = [
        [Paragraph(label="problem", text=text) for text in judgement.problems[1:]],
        [_brief(finding, "also" if at == 0 else "", judgement.nodes) for at, finding in enumerate(errors[1:])],
        [_brief(finding, "warning", judgement.nodes) for finding in warnings],
        [Paragraph(label="note", text=note) for note in judgement.notes],
    ]
    return fitted(fixed, lists, width, height)


def _headline(judgement: Judgement) -> Paragraph:
    launches = f"{counted(len(judgement.folders), 'launch')}{_ended(judgement)}"
    seen = f"{launches}, {counted(judgement.observations, 'observation')}"
    text = f"{_MEANING[judgement.verdict]} ({seen})"
    return Paragraph(
        label="verdict", text=f"{judgement.verdict.value}: {text}", style=VERDICT_STYLES[judgement.verdict]
    )


def _ended(judgement: Judgement) -> str:
    """Return ", launch 1 ended at step 57: fail_fast" where launches were ended early."""
    if not judgement.ended:
        return ""
    told = f" ended at step {judgement.ended[0].at}" if len(judgement.ended) == 1 else " ended early"
    return f", {numbered('launch', [one.launch for one in judgement.ended])}{told}: fail_fast"


def _first(finding: Finding, nodes: Nodes) -> list[Paragraph]:
    distance = f" ({_distance(finding.distance)})" if finding.distance else ""
    paragraphs = [
        Paragraph(label="first", text=place(finding, nodes) + distance, at_most=3),
        Paragraph(label="cause", text=f"{finding.title} [{finding.cause}]", style="bold"),
        Paragraph(label="", text=finding.message, at_most=5),
        Paragraph(label="change", text=finding.advice, at_most=4),
    ]
    if finding.reproduce and finding.witness != "golden":  # there the command that accepts says as much
        paragraphs.append(Paragraph(label="reproduce", text=finding.reproduce, at_most=3))
    return paragraphs


def place(finding: Finding, nodes: Nodes) -> str:
    """Return where a finding is: launches, step, ranks (and on which nodes, of several), phase, name and operator."""
    parts = [numbered("launch", finding.launches)]
    if finding.step is not None:
        parts.append("before step 0" if finding.step < 0 else f"step {finding.step}")
    if finding.ranks:
        parts.append(numbered("rank", finding.ranks) + on_nodes(finding.ranks, nodes))
    if finding.phase:
        parts.append(finding.phase)
    if finding.name:
        parts.append(finding.name)
    if finding.operator:
        parts.append(f"operator {finding.operator}" + (f" at {finding.source}" if finding.source else ""))
    return ", ".join(parts)


def _distance(distance: Distance) -> str:
    ulps = "" if distance.max_ulp is None else f"{distance.max_ulp:,} ULP, "
    return f"{ulps}{distance.elements:,} of {counted(distance.of, 'element')}"


def _brief(finding: Finding, label: str, nodes: Nodes) -> Paragraph:
    style = "yellow" if finding.severity == "warning" else ""
    return Paragraph(label=label, text=f"{place(finding, nodes)}: {finding.message}", style=style, at_most=4)


def _where(judgement: Judgement, context: Context) -> list[Paragraph]:
    paragraphs = []
    if len(judgement.classes) > 1:
        groups = listed([f"[{', '.join(map(str, one))}]" for one in judgement.classes], at_most=8)
        paragraphs.append(Paragraph(label="classes", text=f"launches of equal bits: {groups}", at_most=2))
    folders = list(judgement.folders.values())
    inside = all(Path(folder).parent == context.run.path for folder in folders)
    page = f" and {context.page}" if context.page else ""
    traces = "launch-<i> beside it" if inside else listed(folders, at_most=2)
    files = f"{context.run.verdict}{page}, traces in {traces}"
    paragraphs.append(Paragraph(label="files", text=files, at_most=3 if context.page else 2))
    if judgement.chance is not None:
        paragraphs.append(Paragraph(label="chance", text=in_words(judgement.chance)))
    if judgement.identity:
        paragraphs.append(Paragraph(label="identity", text=f"{judgement.identity[:16]}…, level {context.level}"))
    return paragraphs + (_golden(judgement.golden) if judgement.golden else [])


def _golden(outcome: GoldenOutcome) -> list[Paragraph]:
    """Return what became of the golden; the command that accepts is never cut."""
    kept = f"; obtained: {outcome.obtained}" if outcome.obtained else ""
    # What is a reason not to judge was told above.
    told = (
        outcome.told if outcome.state in ("matched", "changed") else f"{outcome.state}: {outcome.file or outcome.path}"
    )
    paragraphs = [Paragraph(label="golden", text=told + kept, at_most=4)]
    return paragraphs + ([Paragraph(label="accept", text=outcome.accept)] if outcome.accept else [])


def _print(console: Console, text: str, style: str) -> None:
    lines: Sequence[str] = text.splitlines() or [""]
    for line in lines:
        # NO_COLOR alone would leave bold type on.
        console.print(Text(printable(line), style="" if console.no_color else style), soft_wrap=True)
