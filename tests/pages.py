"""Whether the page of a run, in a browser, tells what its ``verdict.json`` holds, number by number."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ddp_repro.judge.wording import numbered
from ddp_repro.report.html.telling import cut
from tests.browser import Browser

LONGEST = 400  # of a title or name in a sentence
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TABLE = "[...document.querySelectorAll('#{} tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
FINDINGS = """
[...document.querySelectorAll('.finding')].map((one) => ({
  severity: one.querySelector('h3 .badge').textContent,
  cause: one.querySelector('h3 code').textContent,
  place: one.querySelector('.place').textContent,
  text: one.textContent,
}))
"""


def assert_shows(browser: Browser, verdict: dict[str, Any]) -> None:
    """Assert that the page that is open renders without an error and tells the whole of ``verdict``."""
    assert browser.console == []
    assert browser.run("document.getElementById('verdict').textContent") == verdict["verdict"]
    text = plain(browser.run("document.body.textContent"))
    for part in _parts(verdict):
        assert plain(part) in text, part
    shown = browser.run(FINDINGS)
    assert len(shown) == len(verdict["findings"])
    for one, found in zip(shown, verdict["findings"], strict=True):
        _assert_finding(one, found)
    _assert_launches(browser, verdict)
    headings = browser.run("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert all(later - earlier <= 1 for earlier, later in pairwise(headings))
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def _parts(verdict: dict[str, Any]) -> Iterator[str]:
    """Yield what stands on the page word by word."""
    yield from verdict["problems"]
    yield from verdict["notes"]
    yield verdict["command"]
    yield verdict["identity"]["digest"][:16]
    if verdict["problems"]:
        yield f"Nothing could be concluded: {cut(verdict['problems'][0], LONGEST)}"
    elif verdict["verdict"] != "NOT_JUDGED":
        yield f"{verdict['observations']:,} observations"
    for one in verdict["identity"]["differences"]:
        yield one["field"]
    if verdict["chance"] is not None:
        held = verdict["chance"]
        percent = f"{100 * held['rate']:.2g} % of launches {100 * held['missed']:.2g} % of the time"
        yield f"{held['launches']} equal launches miss a divergence in {percent}"
    if verdict["golden"] is not None:
        yield f"{verdict['golden']['state']}: {verdict['golden']['told']}"


def _assert_finding(shown: dict[str, str], found: dict[str, Any]) -> None:
    assert (shown["severity"], shown["cause"]) == (found["severity"], f"[{found['cause']}]")
    text = plain(shown["text"])
    for key in ("title", "message", "advice", "operator", "source", "witness"):
        assert plain(found[key] or "") in text, key
    step = found["step"]
    placed = ["" if step is None else "before step 0" if step < 0 else f"step {step}", found["phase"], found["name"]]
    for part in placed:
        assert plain(cut(part or "", LONGEST)) in plain(shown["place"])
    for noun, numbers in (("launch", found["launches"]), ("rank", found["ranks"])):
        assert not numbers or numbered(noun, numbers) in shown["place"].split(", ")
    distance = found["distance"]
    if distance is not None:
        assert f"{distance['elements']:,} of {distance['of']:,} element" in text
        if distance["max_ulp"] is not None:
            assert f"{distance['max_ulp']:,} ULP at most" in text
        for element in distance["first"]:
            assert all(part in text for part in (*element["values"], *element["bits"]))


def _assert_launches(browser: Browser, verdict: dict[str, Any]) -> None:
    rows = browser.run(TABLE.format("launch-table"))
    assert [row[0] for row in rows] == [str(one["launch"]) for one in verdict["launches"]]
    classes = {launch: ALPHABET[at] for at, one in enumerate(verdict["classes"]) for launch in one}
    assert [row[1] for row in rows] == [classes.get(one["launch"], "–") for one in verdict["launches"]]  # noqa: RUF001
    variants = {launch: one["overrides"] for one in verdict["variants"] for launch in one["launches"]}
    for row, one in zip(rows, verdict["launches"], strict=True):
        assert one["folder"] in row[-1]
        assert not variants or row[2] == (" ".join(variants.get(one["launch"], [])) or "nothing overridden")


def plain(text: str) -> str:
    """Return a text as a browser runs it together."""
    return " ".join(text.split())
