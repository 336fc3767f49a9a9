"""``verdict.json`` of `spread`: every number that was measured, and what it was taken for (docs/spread.md)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ddp_repro.judge.spread import Caution, Conclusion, Spread, SpreadRules, Trial
from ddp_repro.judge.spread_wording import limits, percent, sentence, shown, told
from ddp_repro.judge.statistics import Summary
from ddp_repro.trace.layout import RunFolder

SCHEMA: Final = "spread/1"
MEANING: Final = {
    Conclusion.MEASURED: "the spread of seeds was measured",
    Conclusion.WITHIN: "inside what the baseline's seeds explain",
    Conclusion.OUTSIDE: "outside what the baseline's seeds explain",
    Conclusion.IMPROVED: "the candidate was shown to be better",
    Conclusion.WORSE: "the candidate was shown to be worse",
    Conclusion.NOT_SHOWN: "neither better nor worse was shown",
    Conclusion.NOT_JUDGED: "nothing could be concluded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked: the run's folder, the command, the metric in words, the candidate's overrides; and on what."""

    run: RunFolder
    command: str
    metric: str
    candidate: Sequence[str]
    identity: str


def spread_document(
    found: Spread, trials: Sequence[Trial], rules: SpreadRules, asked: Asked, notes: Sequence[str]
) -> dict[str, Any]:
    """Return the content of ``verdict.json``, plain JSON types only."""
    return {
        "schema": SCHEMA,
        "kind": "spread",
        "verdict": found.conclusion.value,
        "exit_code": int(found.conclusion.exit_code),
        "meaning": MEANING[found.conclusion],
        "sentence": sentence(found, rules),
        "command": asked.command,
        "level": "statistical",
        "folder": str(asked.run.path),
        "identity": {"digest": asked.identity},
        "metric": {"name": asked.metric, "better": rules.better},
        "confidence": rules.confidence,
        "power": rules.power,
        "candidate": list(asked.candidate),
        "baseline": None if rules.baseline is None else list(rules.baseline),
        "launches": [asdict(trial) for trial in trials],
        "seeds": _summary(found.own),
        "candidate_seeds": _summary(found.candidate),
        "same_seed": None if found.runs is None else asdict(found.runs),
        "comparison": _comparison(found),
        "expected": None if found.expected is None else asdict(found.expected),
        "problems": list(found.problems),
        "findings": [caution_document(one) for one in found.cautions],
        "notes": [*limits(found, rules), *_tests_told(found, rules), *notes],
        "table": _table(found, rules),
    }


def caution_document(one: Caution) -> dict[str, Any]:
    """Return a caution as a finding of the least severity."""
    return {"severity": "warning", **asdict(one)}


def _summary(summary: Summary | None) -> dict[str, Any] | None:
    return None if summary is None else asdict(summary)


def _comparison(found: Spread) -> dict[str, Any] | None:
    paired = found.paired
    if paired is None:
        return None
    return {
        **asdict(paired.comparison),
        "gain": paired.gain,
        "detectable": paired.detectable,
        "seeds_needed": paired.needed,
    }


def _tests_told(found: Spread, rules: SpreadRules) -> list[str]:
    """Return the difference with its interval, and the tests that do not decide, in one sentence."""
    if found.paired is None:
        return []
    one = found.paired.comparison
    show = shown(one.sd or abs(one.difference))
    how = "all swaps within pairs counted" if one.is_exact else "swaps within pairs sampled"
    others = [
        f"{name} p = {p:.2g}" for name, p in (("paired t", one.p_paired), ("Welch's t", one.p_welch)) if p is not None
    ]
    beside = f"; beside it {', '.join(others)}" if others else ""
    text = (
        f"candidate less command: {show(one.difference)}, within {told(one.difference_in, show)} "
        f"({percent(rules.confidence)}); permutation test p = {one.p_permutation:.3g} ({how}), which decides{beside}"
    )
    return [text]


def _table(found: Spread, rules: SpreadRules) -> dict[str, Any]:
    """Return the summaries as rows of text."""
    rows = []
    for name, summary in (("as it is", found.own), ("candidate", found.candidate)):
        if summary is not None:
            show = shown(summary.sd)
            rows.append(
                [
                    name,
                    str(summary.n),
                    show(summary.mean),
                    show(summary.sd),
                    f"{show(summary.low)} to {show(summary.high)}",
                    told(summary.mean_in, show),
                ]
            )
    head = ["", "seeds", "mean", "deviation", "range", f"within ({percent(rules.confidence)})"]
    return {"head": head, "rows": rows}
