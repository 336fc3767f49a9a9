"""The one number by which a launch is measured, read from what it left once it has ended."""

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ddp_repro.config import MetricConfig, RecordConfig, Take, is_script
from ddp_repro.errors import ReproError
from ddp_repro.run.metric_files import AppendedLines, Scalars
from ddp_repro.run.metric_text import found_in, refuse_parts, refuse_passed_over
from ddp_repro.run.trials import Trial
from ddp_repro.trace.document import read_json

_TAKEN: Final[dict[Take, Callable[[list[float]], float]]] = {
    Take.last: lambda values: values[-1],
    Take.max: max,
    Take.min: min,
}
_EXAMPLE: Final = "'metric.regex=\"val_acc=(\\S+)\"'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A launch's metric, a digest of what was trained where it is known, which way the workload says is better."""

    value: float
    end: str | None
    better: str | None


class Source(Protocol):
    """Where the values of a metric stand, in the order in which a launch gave them."""

    title: str

    def begin(self, trial: Trial) -> None:
        """Take note of what is there before a launch: it is not the launch's."""

    def values(self, trial: Trial) -> list[float]:
        """Return the launch's values; raise ReproError where there are none."""


class Metric:
    """Reads the metric of launches that have ended; ``title`` says what it is."""

    def __init__(self, metric: MetricConfig, config: RecordConfig) -> None:
        self._metric = metric
        self._source = _source(metric, is_script=is_script(config))
        self.title = self._source.title if metric.take is Take.last else f"{metric.take.value} of {self._source.title}"

    def begin(self, trial: Trial) -> None:
        """Take note of what is there before the launch of ``trial``."""
        self._source.begin(trial)

    def read(self, trial: Trial) -> Measured:
        """Return what the launch of ``trial`` gave; raise ReproError where there is no metric, or it is no number."""
        values = self._source.values(trial)
        counted = values[-1:] if self._metric.take is Take.last else values
        broken = next((value for value in counted if not math.isfinite(value)), None)
        if broken is not None:
            raise ReproError(
                f"the metric of launch {trial.launch} (seed {trial.seed}) is {broken}: {self.title}.",
                hint=f"That training came to nothing; see {trial.folder.log(self._metric.rank)}.",
            )
        final = _final(trial, self._metric.rank)
        return Measured(value=_TAKEN[self._metric.take](counted), end=_end(final), better=final.get("better"))


def validate_metric(metric: MetricConfig, config: RecordConfig) -> None:
    """Raise ReproError where no metric is named, or more than one, or one that cannot be read."""
    named = [key for key in ("regex", "jsonl", "tensorboard") if getattr(metric, key)]
    if len(named) > 1:
        raise ReproError(
            f"metric.{' and metric.'.join(named)} are both given.", hint="The metric is one number: name one."
        )
    for owner, key in {"jsonl": "key", "tensorboard": "tag"}.items():
        if bool(getattr(metric, owner)) != bool(getattr(metric, key)):
            raise ReproError(
                f"metric.{owner} and metric.{key} go together.",
                hint=f"Name both: 'metric.{owner}=\"{{out}}/log\"' metric.{key}=val_acc",
            )
    if is_script(config) and not named:
        raise ReproError(
            "nothing says where the script's metric stands.", hint=f"For instance {_EXAMPLE} (docs/spread.md)."
        )
    if not 0 <= metric.rank < config.nproc:
        raise ReproError(f"metric.rank={metric.rank} is not possible.", hint=f"Ranks go from 0 to {config.nproc - 1}.")
    if metric.regex:
        _compiled(metric.regex)


def _source(metric: MetricConfig, *, is_script: bool) -> Source:
    if metric.regex:
        return _Log(_compiled(metric.regex), metric)
    if metric.jsonl and metric.key:
        return AppendedLines(metric.jsonl, metric.key)
    if metric.tensorboard and metric.tag:
        return Scalars(metric.tensorboard, metric.tag)
    assert not is_script
    return _Validation(metric.rank)


def _compiled(regex: str) -> "re.Pattern[str]":
    try:
        compiled = re.compile(regex, re.MULTILINE)
    except re.error as error:
        raise ReproError(
            f"metric.regex={regex} is no regular expression: {error}.", hint=f"For instance {_EXAMPLE}."
        ) from error
    if not compiled.groups:
        raise ReproError(
            f"metric.regex={regex} has no group, so what it finds is no number.",
            hint=f"Put parentheses around the number: {_EXAMPLE}.",
        )
    return compiled


class _Validation:
    """What the built-in loop's validation gave at the end of each epoch."""

    title = "the workload's own metric on its validation data"

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def begin(self, trial: Trial) -> None:
        """Nothing is there before: the launch's folder is its own."""

    def values(self, trial: Trial) -> list[float]:
        results = _final(trial, self._rank).get("validation") or []
        if not results:
            raise ReproError(
                f"launch {trial.launch} (seed {trial.seed}) told no result of validation.",
                hint="The workload needs eval_data and a metric, and train.evaluate=true.",
            )
        return [float(result["metric"]) for result in results]


class _Log:
    """What a pattern finds in a rank's log, which holds all that the rank printed."""

    def __init__(self, pattern: "re.Pattern[str]", metric: MetricConfig) -> None:
        self._pattern = pattern
        self._rank, self._only_last = metric.rank, metric.take is Take.last
        self.title = f"what {pattern.pattern} finds in the log of rank {metric.rank}"

    def begin(self, trial: Trial) -> None:
        """Nothing is there before: the launch's folder is its own."""

    def values(self, trial: Trial) -> list[float]:
        text = self._text(trial, self._rank)
        found = found_in(self._pattern, text)
        refuse_passed_over(self._pattern, text, found, only_last=self._only_last)
        if not found:
            others = [rank for rank in range(trial.config.nproc) if rank != self._rank and self._finds(trial, rank)]
            hint = f"Rank {others[0]} printed it: metric.rank={others[0]}" if others else f"Look at {self._log(trial)}."
            raise ReproError(
                f"metric.regex={self._pattern.pattern} finds nothing in what rank {self._rank} printed in launch "
                f"{trial.launch} (seed {trial.seed}).",
                hint=hint,
            )
        for one in found[-1:] if self._only_last else found:
            refuse_parts(self._pattern, text, one)
        return [self._number(one.text) for one in found]

    def _finds(self, trial: Trial, rank: int) -> bool:
        return self._pattern.search(self._text(trial, rank)) is not None

    def _text(self, trial: Trial, rank: int) -> str:
        log = trial.folder.log(rank)
        return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""

    def _log(self, trial: Trial) -> str:
        return str(trial.folder.log(self._rank))

    def _number(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ReproError(
                f"metric.regex={self._pattern.pattern} finds {text!r}, which is no number.",
                hint="Its first group is taken: put it around the number alone.",
            ) from None


def _final(trial: Trial, rank: int) -> dict[str, Any]:
    path = trial.folder.final(rank)
    return read_json(path) if path.is_file() else {}


def _end(final: dict[str, Any]) -> str | None:
    """Return one digest of all parameters and buffers that training ended with."""
    held = {kind: final.get(kind, {}) for kind in ("param", "buffer")}
    if not held["param"]:
        return None
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:32]
