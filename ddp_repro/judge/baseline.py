"""A spread that was kept: the metric of an earlier run, seed by seed, and what it was measured on."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import ReproError
from ddp_repro.judge.wording import listed
from ddp_repro.trace.document import read_json, write_json

SCHEMA: Final = "baseline/1"
_FIELDS_TOLD: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """``values`` of the metric called ``metric``, by seed in the order of ``seeds``.

    ``settings`` are the configuration's keys (dotted, without the seed) and the data, which must be the same for a run
    to be held to it; ``stack`` is software, hardware and environment (dotted), which may move on.
    """

    metric: str
    seeds: list[int]
    values: list[float]
    settings: dict[str, Any]
    stack: dict[str, Any]
    command: str = ""
    schema: str = SCHEMA


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a tree of settings by dotted name."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline; raise ReproError where it cannot be written."""
    write_json(path, asdict(baseline))


def read_baseline(path: Path) -> Baseline:
    """Read a baseline from its file or its run's folder; raise ReproError where there is none."""
    file = path / "baseline.json" if path.is_dir() else path
    if not file.is_file():
        raise ReproError(
            f"spread.baseline={path} holds no baseline.json.", hint="Name the folder of a spread that was MEASURED."
        )
    content = read_json(file)
    if content.get("schema") != SCHEMA:
        raise ReproError(f"{file} is no baseline that this version reads.", hint="Measure it again with spread.")
    try:
        baseline = Baseline(**content)
        values = [float(value) for value in baseline.values]
    except (TypeError, ValueError) as error:
        raise ReproError(f"{file} is damaged: {error}.", hint="Measure it again with spread.") from error
    if len(values) != len(baseline.seeds) or not values or not all(abs(value) < float("inf") for value in values):
        raise ReproError(f"{file} is damaged: it has not one number a seed.", hint="Measure it again with spread.")
    return baseline


def differing(baseline: Baseline, now: Baseline, allow: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what bars holding a run to the baseline, and what has moved on and is only told."""
    problems = []
    if baseline.metric != now.metric:
        problems.append(f"the baseline's metric is another one: {baseline.metric}, and here {now.metric}")
    settings = _differences(baseline.settings, now.settings)
    refused = {name: told for name, told in settings.items() if not any(_covers(one, name) for one in allow)}
    if refused:
        problems.append(
            f"the baseline was measured with other settings: {listed(refused.values(), at_most=_FIELDS_TOLD)}; name "
            f"those that may differ: compare.allow=[{','.join(list(refused)[:_FIELDS_TOLD])}]"
        )
    moved = [told for name, told in settings.items() if name not in refused]
    moved += _differences(baseline.stack, now.stack).values()
    return problems, [f"since the baseline: {listed(moved, at_most=_FIELDS_TOLD)}"] if moved else []


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return {name: f"{name} {before.get(name)!r} then, {now.get(name)!r} now" for name in names}


def _covers(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
