"""The pages of bisect, survey, spread and cost in a real browser: they render, and show the numbers of verdict.json."""

from collections.abc import Iterator
from typing import Any

import pytest

from ddp_repro.errors import Verdict
from ddp_repro.judge.bisection import Answer, Bisection, Culprit
from ddp_repro.judge.search import Outcome
from ddp_repro.judge.survey import Kind, Seen, surveyed
from ddp_repro.report.bisection import bisection_document
from ddp_repro.report.pages import write_again
from ddp_repro.report.survey import survey_document
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.layout import RunFolder
from tests.browser import MARKS, Browser
from tests.cli.test_report_html import TEXTS, contrast
from tests.unit.test_report_measured import of_cost, of_spread

pytestmark = MARKS

MARKUP = "<img src=x onerror=alert(1)>"
ROWS = """
[...document.querySelectorAll("table")].map((table) =>
  [...table.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent)))
"""
DOTS = """
[...document.querySelectorAll("figure.dots")].map((figure) => ({
  at: figure.querySelector(".reference") ? Number(figure.querySelector(".reference").getAttribute("x1")) : null,
  ticks: [...figure.querySelectorAll(".x span")].map((tick) => Number(tick.textContent)),
  rows: [...figure.querySelectorAll("svg")].map((svg) => ({
    label: svg.parentElement.querySelector(".name").textContent,
    dots: [...svg.querySelectorAll(".dot")].map((dot) => [Number(dot.getAttribute("x1")),
                                                          Number(dot.querySelector("title").textContent)]),
    interval: [...svg.querySelectorAll(".interval")].map((one) => [Number(one.getAttribute("x1")),
                                                                   Number(one.getAttribute("x2"))]),
    mean: [...svg.querySelectorAll(".mean")].map((one) => Number(one.getAttribute("x1"))),
  })),
}))
"""


def of_bisect(run: RunFolder) -> dict[str, Any]:
    culprit = Culprit(
        name="workers", overrides=('workload.args="--workers 0"',), cost=f"time {MARKUP}", together=("bucket",)
    )
    answers = (
        Answer(number=0, off=(), outcome=Outcome.YES, launches=7, shown=2),
        Answer(number=1, off=("workers", "bucket"), outcome=Outcome.NO, launches=23, shown=0),
        Answer(number=2, off=("bucket",), outcome=Outcome.UNKNOWN, launches=1, shown=0, why="launch 0 failed"),
    )
    bisection = Bisection(
        verdict=Verdict.DIVERGED,
        sentence="workers: with it off 23 launches were equal",
        culprits=(culprit,),
        answers=answers,
        left_out={"compile": "off already"},
        confidence=0.951,
        rarest=0.123,
        notes=("workers diverges only together with bucket",),
        diverging="torchrun -m ddp_repro.check nproc=3",
        equal="torchrun -m ddp_repro.check nproc=3 data.num_workers=0",
    )
    return bisection_document(bisection, run, "torchrun -m ddp_repro.bisect nproc=3")


def of_survey(run: RunFolder) -> dict[str, Any]:
    def seen(operator: str, source: str, differed: int, said: str = "") -> Seen:
        return Seen(
            operator=operator, module="net", source=source, part="forward", calls=40, compared=12, differed=differed,
            said=said,
        )  # fmt: skip

    on = [seen("aten::put_", "train.py:9", 0, f"put_ has none {MARKUP}"), seen("own::noise", "train.py:11", 5)]
    off = [seen("aten::put_", "train.py:9", 0), seen("own::noise", "train.py:11", 6), seen("aten::index_put", "t:7", 3)]
    found = surveyed(on, [*off, seen("aten::cumsum", "t:8", 2)], ["aten::cumsum"])
    return survey_document(found, run, "torchrun -m ddp_repro.survey nproc=2")


def of_measured(document: dict[str, Any], run: RunFolder) -> dict[str, Any]:
    return {**document, "folder": str(run.path), "notes": [*document["notes"], MARKUP]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    made = {name: RunFolder(tmp_path_factory.mktemp(name)) for name in ("bisect", "survey", "spread", "cost")}
    spread = of_spread([0.1, 0.2, 0.3, 0.25, 0.2, 0.22], [0.5, 0.65, 0.7, 0.61, 0.63, 0.59])
    documents = {
        "bisect": of_bisect(made["bisect"]),
        "survey": of_survey(made["survey"]),
        "spread": of_measured(spread, made["spread"]),
        "cost": of_measured(of_cost([]), made["cost"]),
    }
    for name, run in made.items():
        write_json(run.verdict, documents[name])
        write_again(run)
    return made


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile"), timeout_s=100) as browser:
        yield browser


def shown(browser: Browser, run: RunFolder) -> dict[str, Any]:
    """Show the page of a run, as on a desk, and return its verdict."""
    browser.size(1100, 900)
    browser.media()
    browser.console.clear()
    browser.loaded.clear()
    browser.open(run.report)
    return read_json(run.verdict)


def told(table: list[list[str]], *columns: str) -> list[list[str]]:
    """Return some columns of a table."""
    places = [table[0].index(column) for column in columns]
    return [[row[at] for at in places] for row in table[1:]]


@pytest.mark.parametrize("name", ["bisect", "survey", "spread", "cost"])
def test_a_page_renders_without_errors_and_loads_nothing_else(
    name: str, opened: Browser, runs: dict[str, RunFolder]
) -> None:
    verdict = shown(opened, runs[name])
    assert opened.run("document.getElementById('verdict').textContent") == verdict["verdict"]
    headline = opened.run("document.getElementById('sentence').textContent")
    assert headline.rstrip(".").lower() == verdict["sentence"].lower()
    assert verdict["command"] in opened.run("document.body.textContent")
    assert all(note in opened.run("document.body.textContent") for note in verdict["notes"])
    assert MARKUP in opened.run("document.body.textContent")
    assert opened.run("document.querySelectorAll('img').length") == 0
    assert opened.console == []
    assert set(opened.loaded) == {runs[name].report.as_uri()}


def test_the_page_of_bisect_has_the_numbers_of_its_verdict(opened: Browser, runs: dict[str, RunFolder]) -> None:
    verdict = shown(opened, runs["bisect"])
    culprits, sure, commands, outcomes, left_out = opened.run(ROWS)
    (culprit,) = verdict["culprits"]
    assert culprits[1] == [culprit["name"], culprit["overrides"][0], culprit["cost"], "bucket"]
    assert sure[1][0] == f"{verdict['confidence']:.1%}" == "95.1%"
    assert f"in {verdict['rarest']:.0%} of launches or more" in sure[1][1]
    assert dict(commands[1:]) == verdict["reproduce"]
    assert told(outcomes, "launches", "showed at least in", "folder") == [
        [str(one["launches"]), str(one["shown"]), one["folder"]] for one in verdict["outcomes"]
    ]
    assert [row[2] for row in outcomes[1:]] == ["diverges", "reproducible", "unknown: launch 0 failed"]
    assert dict(left_out[1:]) == verdict["left_out"]


def test_the_page_of_survey_has_the_numbers_of_its_verdict(opened: Browser, runs: dict[str, RunFolder]) -> None:
    verdict = shown(opened, runs["survey"])
    tables = opened.run(ROWS)
    titles = opened.run("[...document.querySelectorAll('h2')].map((one) => one.textContent)")
    assert len(tables) == 4
    assert [title.lower() for title in titles[:3]] == list(Kind)
    rows = [row for table in tables for row in told(table, "operator", "calls", "differed", "what PyTorch says")]
    assert sorted(rows) == sorted(
        [one["operator"], str(one["calls"]), str(one["differed"]), one["says"]] for one in verdict["offenders"]
    )
    assert titles[3] == "Accepted"
    assert told(tables[3], "operator") == [["aten::cumsum"]]


def test_the_page_of_spread_has_the_numbers_of_its_verdict(opened: Browser, runs: dict[str, RunFolder]) -> None:
    verdict = shown(opened, runs["spread"])
    summary, launches = opened.run(ROWS)
    assert summary == [verdict["table"]["head"], *verdict["table"]["rows"]]
    assert [[row[0], row[2], float(row[3])] for row in launches[1:]] == [
        [str(one["launch"]), str(one["seed"]), one["value"]] for one in verdict["launches"]
    ]
    values, differences = opened.run(DOTS)
    by_arm = {arm: [one["value"] for one in verdict["launches"] if one["arm"] == arm] for arm in ("A", "B")}
    assert [sorted(value for _, value in row["dots"]) for row in values["rows"]] == [
        sorted(by_arm["A"]), sorted(by_arm["B"])
    ]  # fmt: skip
    for row, key in zip(values["rows"], ("seeds", "candidate_seeds"), strict=True):
        assert_drawn(values, row, verdict[key]["mean"], verdict[key]["mean_in"])
    compared = verdict["comparison"]
    assert_drawn(differences, differences["rows"][0], compared["difference"], compared["difference_in"])
    assert place_of(differences, 0.0) == pytest.approx(differences["at"], abs=0.6)
    assert f"{compared['p_permutation']:.3g}" in opened.run("document.getElementById('notes').textContent")


def test_the_page_of_cost_has_the_numbers_of_its_verdict(opened: Browser, runs: dict[str, RunFolder]) -> None:
    verdict = shown(opened, runs["cost"])
    summary, launches = opened.run(ROWS)
    assert summary == [verdict["table"]["head"], *verdict["table"]["rows"]]
    assert launches == [verdict["launch_head"], *verdict["launch_rows"]]
    ratios, times = opened.run(DOTS)
    timed = [one for one in verdict["arms"] if one["ratio"] is not None]
    assert [row["label"] for row in ratios["rows"]] == [one["arm"] for one in timed]
    for row, one in zip(ratios["rows"], timed, strict=True):
        assert len(row["dots"]) == one["ratio"]["pairs"]
        assert_drawn(ratios, row, one["ratio"]["ratio"], one["ratio"]["within"])
    assert place_of(ratios, 1.0) == pytest.approx(ratios["at"], abs=0.6)
    drawn = sorted(value for row in times["rows"] for _, value in row["dots"])
    assert drawn == pytest.approx(sorted(one["seconds"] * 1e3 for one in verdict["launches"]))


def place_of(figure: dict[str, Any], number: float) -> float:
    """Return where on a figure's axis a number lies, by two of its dots."""
    dots = sorted((value, x) for row in figure["rows"] for x, value in row["dots"])
    (low, at), (high, end) = dots[0], dots[-1]
    return float(at + (number - low) / (high - low) * (end - at))


def assert_drawn(figure: dict[str, Any], row: dict[str, Any], mean: float, held: dict[str, float]) -> None:
    """Assert that dots, mean and interval lie where their numbers are, to a pixel."""
    for x, value in row["dots"]:
        assert x == pytest.approx(place_of(figure, value), abs=0.6)
    assert row["mean"] == pytest.approx([place_of(figure, mean)], abs=0.6)
    (interval,) = row["interval"]
    assert interval == pytest.approx([place_of(figure, held["low"]), place_of(figure, held["high"])], abs=0.6)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["bisect", "survey", "spread", "cost"])
def test_a_page_can_be_read_on_paper_and_on_a_phone(
    name: str, dark: bool, opened: Browser, runs: dict[str, RunFolder]
) -> None:
    shown(opened, runs[name])
    for medium in ("", "print"):
        opened.media(medium, dark=dark)
        texts: list[dict[str, Any]] = opened.run(TEXTS)
        assert len(texts) > 20
        assert [one for one in texts if one["size"] < 12 or float(one["opacity"]) < 1] == []
        assert [one for one in texts if contrast(one["colour"], one["behind"]) < 4.5] == []
    opened.media(dark=dark)
    opened.size(320, 800, phone=True)
    assert opened.run("document.documentElement.scrollWidth") <= 320
    assert opened.run("[...document.querySelectorAll('.dots svg')].every((one) => one.clientWidth > 250)")
    assert opened.run("[...document.querySelectorAll('table')].every((one) => one.querySelector('th[scope=col]'))")
