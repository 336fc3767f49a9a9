"""The page of a run in a real browser: it renders, answers, can be read, on a phone and in print, light and dark."""

import json
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.report.html.page import write_page
from ddp_repro.report.html.places import CALLED, COLOURS, EQUAL
from ddp_repro.report.html.source import Loaded
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.trace.document import write_json
from ddp_repro.trace.layout import RunFolder
from tests.browser import MARKS, Browser
from tests.unit.synthetic import Script, changed, from_step, launch_of, ranks

pytestmark = MARKS

LONG = "encoder.layers.11.attention.output.dense." * 4 + "weight"

# Every element with text of its own: its size in px, its colour, and the first opaque colour behind it.
TEXTS = """
(() => {
  const told = [];
  for (const element of document.querySelectorAll("body *")) {
    if (["SCRIPT", "STYLE"].includes(element.tagName) || !element.checkVisibility({visibilityProperty: true})) continue;
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!text) continue;
    let behind = element;
    const of = (one) => getComputedStyle(one).backgroundColor;
    while (behind.parentElement && of(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    const style = getComputedStyle(element);
    told.push({text: text.slice(0, 40), size: parseFloat(style.fontSize), colour: style.color, behind: of(behind),
               opacity: style.opacity});
  }
  return told;
})()
"""
CANVAS = """
(() => {
  const canvas = document.querySelector("#map canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = {};
  for (let at = 0; at < data.length; at += 4) {
    const key = "#" + [0, 1, 2].map((one) => data[at + one].toString(16).padStart(2, "0")).join("");
    seen[key] = (seen[key] || 0) + 1;
  }
  return seen;
})()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    clean = ranks(Script(world_size=4))
    other = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in clean.items()}
    other[2] = changed(other[2], step=2, phase="grad_local", name="head.weight")
    launches = [launch_of(clean, index=0), launch_of(other, index=1), launch_of(clean, index=2)]
    document = verdict_document(judge(launches, Rules(reproduce="the command")), Context(run=folder, command="command"))
    document["notes"] = [*document["notes"], "<img src=x onerror=alert(1)>", LONG * 3]
    document["findings"][0]["names"] = ["head.weight", LONG]
    document["findings"].append({**document["findings"][0], "severity": "warning"})
    document["problems"] = ["a problem"]
    document["identity"]["differences"] = [{"field": f"software.{LONG}", "values": ["1", "2", None], "allowed": True}]
    write_json(folder.verdict, json.loads(json.dumps(document)))
    write_json(folder.identity, {"software": {"torch": "2.13.0", "name": LONG}, "provenance": {"host": "a"}})
    write_page(folder, Loaded.of(launches))
    return folder


@pytest.fixture(scope="module")
def opened(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        browser.size(1100, 900)
        browser.open(run.report)
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Browser:
    opened.size(1100, 900)
    opened.media()
    opened.run("document.activeElement.blur(); scrollTo(0, 0)")
    return opened


def channels(colour: str) -> list[float]:
    return [float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]


def contrast(a: str, b: str) -> float:
    def luminance(colour: str) -> float:
        scaled = [channel / 255 for channel in channels(colour)]
        red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in scaled]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def details(browser: Browser) -> str:
    return str(browser.run("document.getElementById('details').textContent"))


def test_renders_without_errors_and_loads_nothing_else(browser: Browser, run: RunFolder) -> None:
    verdict = json.loads(run.verdict.read_text())
    assert browser.run("document.getElementById('verdict').textContent") == verdict["verdict"]
    assert browser.run("document.querySelectorAll('.finding').length") == len(verdict["findings"])
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.console == []
    assert set(browser.loaded) == {run.report.as_uri()}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_map_is_drawn_in_the_colours_of_its_legend(browser: Browser, theme: str) -> None:
    browser.media(dark=theme == "dark")
    drawn: dict[str, int] = browser.run(CANVAS)
    places = {called: place for place, called in CALLED.items()}
    expected = {COLOURS[theme][places[called]] for called in ("grad_local", "grad_reduced")} | {EQUAL[theme]}
    assert expected <= {colour for colour, count in drawn.items() if count > 100}
    chips = "[...document.querySelectorAll('.legend .chip')].map((one) => getComputedStyle(one).backgroundColor)"
    legend = {"#" + "".join(f"{int(c):02x}" for c in channels(colour)) for colour in browser.run(chips)}
    assert expected <= legend


def test_the_map_answers_the_keyboard(browser: Browser) -> None:
    assert details(browser).startswith("Rank 2, step 2: differs first in grad_local, head.weight")
    browser.run("document.getElementById('map').focus()")
    browser.press("ArrowLeft")
    assert details(browser) == "Rank 2, step 1: equal in bits."
    browser.press("ArrowRight")
    browser.press("ArrowUp")
    assert details(browser).startswith("Rank 1, step 2: differs first in grad_reduced")
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    assert details(browser).startswith("Rank 3, step 2: ")
    browser.press("n")
    assert details(browser).startswith("Rank 0, step 3: ")
    browser.press("Home")
    assert details(browser).startswith("Rank 2, step 2: ")
    for _ in range(12):
        browser.press("ArrowUp")
    assert details(browser).startswith("Rank 0, step 2: ")


def test_the_map_answers_mouse_and_touch(browser: Browser) -> None:
    box: dict[str, float] = browser.run(
        "(() => { document.getElementById('map').scrollIntoView(); const box = document.querySelector('#map canvas')"
        ".getBoundingClientRect(); return {x: box.x, y: box.y, width: box.width, height: box.height}; })()"
    )
    columns = browser.run("JSON.parse(document.getElementById('data').textContent).spans.length")
    x = box["x"] + box["width"] * (3.5 / columns)  # the fourth: what precedes step 0 has a column of its own
    browser.point(x, box["y"] + box["height"] * 2.5 / 4)
    assert details(browser).startswith("Rank 2, step 2: differs first in grad_local")
    browser.point(x, box["y"] + box["height"] * 0.5 / 4, click=True)
    assert details(browser).startswith("Rank 0, step 2: differs first in grad_reduced")
    browser.run("document.getElementById('next').click()")
    assert details(browser).startswith("Rank 1, step 2: ")
    browser.run("document.getElementById('first').click()")
    assert details(browser).startswith("Rank 2, step 2: ")


def test_launches_can_be_taken_out_of_the_losses(browser: Browser) -> None:
    count = "[...document.querySelectorAll('polyline[data-launch]')].filter((one) => one.checkVisibility()).length"
    assert browser.run(count) == 12
    browser.run("document.querySelector('#launches input').click()")
    assert browser.run(count) == 8
    browser.run("document.querySelector('#launches input').click()")
    assert browser.run(count) == 12


@pytest.mark.parametrize("medium", ["screen", "print"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1100])
def test_text_is_readable(browser: Browser, medium: str, dark: bool, width: int) -> None:
    browser.size(width, 800, phone=width < 500)
    browser.media("" if medium == "screen" else "print", dark=dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    texts: list[dict[str, Any]] = browser.run(TEXTS)
    assert len(texts) > 80
    assert [one for one in texts if one["size"] < 12 or float(one["opacity"]) < 1] == []
    assert [one for one in texts if contrast(one["colour"], one["behind"]) < 4.5] == []
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (channels(paper)[0] < 60) == (dark and medium == "screen")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_screen_does_not_scroll_sideways(browser: Browser, width: int) -> None:
    browser.size(width, 800, phone=True)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelector('#map canvas').getBoundingClientRect().right") <= width
    small = (
        "[...document.querySelectorAll('button')].filter((one) => one.offsetHeight < 24 || one.offsetWidth < 24).length"
    )
    assert browser.run(small) == 0


def test_print_leaves_out_what_paper_cannot_do(browser: Browser) -> None:
    pages = browser.printed()
    assert pages.startswith(b"%PDF")
    assert pages.count(b"/Type /Page\n") + pages.count(b"/Type /Page ") + pages.count(b"/Type /Page/") >= 1
    browser.media("print", dark=True)
    for hidden in (".controls", "#details", "#cursor"):
        assert browser.run(f"document.querySelector('{hidden}').checkVisibility()") is False
    assert browser.run("document.querySelector('#map canvas').checkVisibility()") is True


def test_people_who_do_not_see_the_map_have_its_content(browser: Browser) -> None:
    assert browser.run("[...document.querySelectorAll('table')].every((one) => one.querySelector('th[scope=col]'))")
    label = "document.getElementById(one.getAttribute('aria-labelledby'))"
    assert browser.run(f"[...document.querySelectorAll('section')].every((one) => {label})")
    assert "Arrow keys" in browser.run("document.getElementById('map').ariaLabel")
    assert browser.run("document.getElementById('details').getAttribute('aria-live')") == "polite"
    assert browser.run(
        "[...document.querySelectorAll('svg')].every((one) => one.getAttribute('aria-label').length > 20)"
    )
    assert browser.run("document.querySelectorAll('.by-rank tbody tr').length") == 4
    assert browser.run("document.documentElement.lang") == "en"
    order = browser.run("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert order[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(order))


def test_pictures_of_it_can_be_taken(browser: Browser, tmp_path: Path) -> None:
    browser.picture(tmp_path / "page.png")
    content = (tmp_path / "page.png").read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height > 1500) == (1100, True)
