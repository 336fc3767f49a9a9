"""Makes the page of a measuring command, from ``verdict.json`` alone."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import ReproError
from ddp_repro.report.html.dots import Dots, Given, dots
from ddp_repro.report.html.environment import environment, stylesheet
from ddp_repro.report.html.places import COLOURS, EQUAL, SURFACES
from ddp_repro.trace.document import read_json, write_text
from ddp_repro.trace.layout import RunFolder

Document = Mapping[str, Any]


def is_measured(document: Document) -> bool:
    """Tell whether a verdict is one of a measuring command that this version can draw."""
    return document.get("schema") in _PLOTS


def write_measured_page(run: RunFolder, document: Document | None = None) -> Path:
    """Write ``report.html`` from the run's ``verdict.json``, or from its content that is at hand; return its path.

    Raises ReproError where there is none, or the file cannot be written.
    """
    told = read_json(run.verdict) if document is None else document
    if not is_measured(told):
        raise ReproError(f"{run.verdict} is no verdict of this version", hint="measure again")
    write_text(run.report, measured_page(told))
    return run.report


def measured_page(document: Document) -> str:
    """Return the page, one HTML document that needs nothing else."""
    text = str(document["sentence"])
    return (
        environment()
        .get_template("measured.html.j2")
        .render(
            verdict=document,
            headline=f"{text[:1].upper()}{text[1:]}.",
            plots=_PLOTS[document["schema"]](document),
            tables=[{"title": "In numbers", **document["table"]}, *_launches(document)],
            colours=COLOURS,
            surfaces=SURFACES,
            equal=EQUAL,
            style=stylesheet(),
        )
    )


def _launches(document: Document) -> list[dict[str, Any]]:
    head = document.get("launch_head") or ["launch", "arm", "seed", "metric"]
    rows = document.get("launch_rows")
    if rows is None:
        rows = [[str(one["launch"]), one["arm"], str(one["seed"]), repr(one["value"])] for one in document["launches"]]
    return [{"title": "Launches", "head": head, "rows": rows}] if rows else []


def _of_spread(document: Document) -> list[Dots]:
    percent = f"{document['confidence'] * 100:.4g} %"
    rows = [
        _summary("as it is", document["seeds"], document, "A"),
        _summary("candidate", document["candidate_seeds"], document, "B"),
    ]
    same = document["same_seed"]
    if same is not None:
        rows.append(Given(label=f"seed {same['seed']} again", values=same["values"]))
    if document["expected"] is not None:
        held = document["expected"]
        rows.append(
            Given(label="expected by the baseline", values=document["baseline"], interval=(held["low"], held["high"]))
        )
    made = [
        dots(
            f"The metric, seed by seed: {document['metric']['name']}",
            f"One dot a launch; the upright line is the mean, the bar its interval ({percent}).",
            rows,
        ),
        _differences(document, percent),
    ]
    return [one for one in made if one is not None]


def _summary(label: str, summary: Document | None, document: Document, arm: str) -> Given:
    first = {one["seed"]: one["value"] for one in reversed(document["launches"]) if one["arm"] == arm}
    if summary is None:
        return Given(label=label, values=list(first.values()))
    held = summary["mean_in"]
    return Given(label=label, values=list(first.values()), interval=(held["low"], held["high"]), mean=summary["mean"])


def _differences(document: Document, percent: str) -> Dots | None:
    found = document["comparison"]
    if found is None:
        return None
    by_arm: dict[str, dict[int, float]] = {"A": {}, "B": {}}
    for one in reversed(document["launches"]):
        by_arm[one["arm"]][one["seed"]] = one["value"]
    pairs = [by_arm["B"][seed] - value for seed, value in by_arm["A"].items() if seed in by_arm["B"]]
    held = found["difference_in"]
    row = Given(
        label="candidate less as it is", values=pairs, interval=(held["low"], held["high"]), mean=found["difference"]
    )
    return dots(
        "The difference, seed by seed",
        f"One dot a seed; an interval ({percent}) that holds zero, the dashed line, shows no difference.",
        [row],
        at=0.0,
    )


def _of_cost(document: Document) -> list[Dots]:
    percent = f"{document['confidence'] * 100:.4g} %"
    by_arm: dict[str, dict[int, float]] = {}
    for one in document["launches"]:
        by_arm.setdefault(one["arm"], {})[one["repeat"]] = one["seconds"]
    ratios = [_ratio(one, by_arm) for one in document["arms"] if one["ratio"] is not None]
    times = [Given(label=arm, values=[one * 1e3 for one in found.values()]) for arm, found in by_arm.items()]
    made = [
        dots(
            "How many times longer a step takes",
            f"One dot a pair of launches; an interval ({percent}) that holds 1, the dashed line, shows no cost.",
            ratios,
            at=1.0,
        ),
        dots("Milliseconds a step", "One dot a launch: its median step.", times),
    ]
    return [one for one in made if one is not None]


def _ratio(arm: Document, by_arm: Mapping[str, Mapping[int, float]]) -> Given:
    own, other = by_arm[arm["arm"]], by_arm[arm["relative_to"]]
    held = arm["ratio"]["within"]
    return Given(
        label=arm["arm"],
        values=[own[repeat] / other[repeat] for repeat in own if repeat in other],
        interval=(held["low"], held["high"]),
        mean=arm["ratio"]["ratio"],
    )


_PLOTS: Final[dict[str, Callable[[Document], list[Dots]]]] = {"spread/1": _of_spread, "cost/1": _of_cost}
