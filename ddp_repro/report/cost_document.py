"""``verdict.json`` of `cost`: every launch that was timed, and what the arms came to (docs/cost.md)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ddp_repro.judge.cost import Cost, Line, Timed
from ddp_repro.judge.cost_wording import mebibytes, milliseconds, notes, sentence
from ddp_repro.report.spread_document import caution_document
from ddp_repro.trace.layout import RunFolder

SCHEMA: Final = "cost/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAsked:
    """What was asked: the run's folder, the command, the confidence; which switches were not timed, and on what."""

    run: RunFolder
    command: str
    confidence: float
    left_out: Sequence[str]
    identity: str


def cost_document(cost: Cost, timed: Sequence[Timed], asked: CostAsked) -> dict[str, Any]:
    """Return the content of ``verdict.json``, plain JSON types only."""
    is_measured = not cost.problems and bool(cost.lines)
    return {
        "schema": SCHEMA,
        "kind": "cost",
        "verdict": "MEASURED" if is_measured else "NOT_JUDGED",
        "exit_code": 0 if is_measured else 2,
        "meaning": "what it costs was measured" if is_measured else "nothing could be concluded",
        "sentence": sentence(cost, asked.confidence),
        "command": asked.command,
        "level": "statistical",
        "folder": str(asked.run.path),
        "identity": {"digest": asked.identity},
        "confidence": asked.confidence,
        "arms": [_arm(line) for line in cost.lines],
        "noise": cost.noise,
        "launches": [asdict(one) for one in timed],
        "problems": list(cost.problems),
        "findings": [caution_document(one) for one in cost.cautions],
        "notes": notes(cost, asked.left_out, asked.confidence),
        "table": {
            "head": ["", "ms/step", "ratio", "within", "peak MiB", *(_gpu_head(cost))],
            "rows": [_row(line, has_gpu=bool(_gpu_head(cost))) for line in cost.lines],
        },
        "launch_head": ["launch", "arm", "turn", "ms a step", "steps", "peak MiB"],
        "launch_rows": [
            [
                str(one.launch),
                one.arm,
                str(one.repeat),
                milliseconds(one.seconds),
                str(one.steps),
                _memory(one.rss_bytes),
            ]
            for one in timed
        ],
    }


def _arm(line: Line) -> dict[str, Any]:
    told = asdict(line)
    told["ratio"] = None if line.ratio is None else {**asdict(line.ratio), "is_shown": line.ratio.is_shown}
    return told


def _row(line: Line, *, has_gpu: bool) -> list[str]:
    ratio = line.ratio
    cells = [
        line.arm,
        milliseconds(line.seconds),
        "1" if ratio is None else f"{ratio.ratio:.3f}",
        "" if ratio is None else f"{ratio.within.low:.3f} to {ratio.within.high:.3f}",
        _memory(line.rss_bytes),
    ]
    return [*cells, _memory(line.gpu_bytes)] if has_gpu else cells


def _gpu_head(cost: Cost) -> list[str]:
    return ["GPU MiB"] if any(line.gpu_bytes is not None for line in cost.lines) else []


def _memory(count: float | None) -> str:
    return "unknown" if count is None else mebibytes(count)
