"""The page of a run, without a browser: what it says is what the verdict says, and what it draws is in the traces."""

import json
import math
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddp_repro.errors import ReproError
from ddp_repro.judge.distance import distance_between, distance_of, ulps_between
from ddp_repro.judge.findings import Distance, FieldDifference, GoldenOutcome, Variant
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.report.html.axis import axis
from ddp_repro.report.html.curves import thinned
from ddp_repro.report.html.gathering import OfRank
from ddp_repro.report.html.grid import grid
from ddp_repro.report.html.page import page, write_page
from ddp_repro.report.html.places import CALLED, COLOURS, EQUAL, SURFACES, contrast
from ddp_repro.report.html.seen import EQUAL as SAME
from ddp_repro.report.html.source import Files, Loaded
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.tensors import Stored
from tests.unit.synthetic import Ranks, Script, Writing, changed, from_step, launch_of, ranks, write_launch

SCRIPT = Script(world_size=3)
CLEAN = ranks(SCRIPT)
DIVERGED: Ranks = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in CLEAN.items()}
DIVERGED[1] = changed(DIVERGED[1], step=2, phase="grad_local", name="head.weight")


class Text(HTMLParser):
    """Gathers the texts of elements by id, all text, and every tag."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._skip = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._skip = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._skip = False

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.text += data


def verdict_on(launches: list[Launch], **rules: Any) -> dict[str, Any]:
    judged = judge(launches, Rules(reproduce="the command", **rules))
    context = Context(run=RunFolder(Path("runs/0")), command="the command", ignore=rules.get("ignore", ()))
    document: dict[str, Any] = json.loads(json.dumps(verdict_document(judged, context)))
    return document


def page_of(launches: list[Launch], verdict: dict[str, Any] | None = None, **rules: Any) -> str:
    return page(verdict or verdict_on(launches, **rules), {}, Loaded.of(launches))


def data_in(source: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def cells(data: dict[str, Any]) -> dict[tuple[str, int], tuple[str, list[int]]]:
    """Return phase and content of each cell that differs, by rank and first step of the column."""
    found = {}
    for row in data["rows"]:
        rest = iter(row["cells"])
        for sign, (begin, _) in zip(row["signs"], data["spans"], strict=True):
            if sign in data["letters"]:
                found[row["label"], begin] = (data["letters"][sign]["called"], next(rest))
        assert next(rest, None) is None
    return found


def pair(other: Ranks = DIVERGED) -> list[Launch]:
    return [launch_of(CLEAN, index=0), launch_of(other, index=1)]


def test_the_numbers_are_those_of_the_verdict() -> None:
    launches = pair()
    verdict = verdict_on(launches)
    source = page_of(launches, verdict)
    told = " ".join(Text(source).text.split())
    found = verdict["findings"][0]
    assert (found["step"], found["ranks"], found["phase"]) == (2, [1], "grad_local")
    for part in (
        verdict["verdict"],
        f"{verdict['observations']:,} observations",
        "launches 0 and 1, step 2, rank 1, grad_local, head.weight",
        found["title"],
        found["message"],
        found["advice"],
        verdict["command"],
        verdict["identity"]["digest"][:16],
        *verdict["notes"],
    ):
        assert " ".join(part.split()) in told
    table = re.search(r'<table id="launch-table">.*?</table>', source, re.DOTALL)
    assert table is not None
    letters = re.findall(r'<th scope="row">(\d)</th><td>(\w)</td>', table[0])
    assert letters == [("0", "A"), ("1", "B")]
    assert verdict["classes"] == [[0], [1]]


def test_the_map_places_the_first_difference_of_each_rank() -> None:
    found = cells(data_in(page_of(pair())))
    assert min(step for _, step in found) == 2
    assert {rank: found[rank, 2][0] for rank in "012"} == {"0": "grad_reduced", "1": "grad_local", "2": "grad_reduced"}
    assert found["1", 3][0] == "buffer, as the forward begins"
    step, rank, _, count, steps = found["1", 2][1]
    assert (step, rank, steps) == (2, 1, 1)
    assert count > 1


def test_the_chain_tells_what_was_equal_and_what_differs_on_which_ranks() -> None:
    source = page_of(pair())
    (chain,) = re.findall(r'<table id="chain" data-step="2">(.*?)</table>', source, re.DOTALL)
    rows = [re.sub("<[^>]+>", " ", row) for row in re.findall(r"<tr.*?</tr>", chain, re.DOTALL)]
    told = {row.split()[0]: row for row in rows[1:]}
    assert "equal" in told["loss"]
    assert "equal" in told["data"]
    assert "(first)" in told["grad_local"]
    assert "rank 1" in told["grad_local"]
    assert "head.weight" in told["grad_local"]
    assert "ranks 0 to 2" in told["grad_reduced"]
    assert "(first)" not in told["grad_reduced"]


def test_equal_launches_have_a_map_without_differences() -> None:
    source = page_of(pair(CLEAN))
    data = data_in(source)
    assert cells(data) == {}
    assert {sign for row in data["rows"] for sign in row["signs"]} == {"="}
    assert 'id="chain"' not in source
    assert "no invariant was broken" in source


def test_ranks_that_disagree_are_compared_with_one_that_does_not() -> None:
    moved = {**CLEAN, 2: from_step(CLEAN[2], 1, "param")}
    launches = [launch_of(moved, index=0), launch_of(moved, index=1)]
    verdict = verdict_on(launches)
    found = next(one for one in verdict["findings"] if one["witness"] == "ranks")
    source = page_of(launches, verdict)
    assert "Where ranks of launch 0 differ from rank 0" in source
    seen = cells(data_in(source))
    assert {rank for rank, _ in seen} == {str(rank) for rank in found["ranks"]} == {"2"}
    assert seen["2", found["step"]][0] == found["phase"] == "param"
    assert "the verdict counts" not in source


def test_twins_are_drawn_without_what_was_meant_to_differ() -> None:
    workers = ranks(Script(world_size=3, workers=2))
    launches = [launch_of(CLEAN, index=0), launch_of(workers, index=1)]
    variants = tuple(Variant(overrides=(f"v{at}",), launches=(at,), allow=()) for at in range(2))
    verdict = verdict_on(launches, variants=variants)
    assert verdict["verdict"] == "REPRODUCIBLE"
    assert cells(data_in(page_of(launches, verdict))) == {}


def test_what_is_ignored_is_not_drawn() -> None:
    other = {**CLEAN, 0: changed(CLEAN[0], step=1, phase="optimizer", name="group0.lr")}
    assert cells(data_in(page_of(pair(other))))
    assert cells(data_in(page_of(pair(other), ignore=("group0.lr",)))) == {}


def test_launches_of_other_identities_are_not_compared() -> None:
    launches = pair()
    other = {rank: {**held, "software": {"torch": "other"}} for rank, held in launches[1].identities.items()}
    launches[1] = replace(launches[1], identities=other)
    source = page_of(launches)
    assert "NOT_JUDGED" in source
    assert 'id="data"' not in source
    assert "there is no map" in source
    assert "software.torch" in source


def test_a_launch_that_was_cut_short_differs_only_where_both_are_there(tmp_path: Path) -> None:
    cut = {rank: [row for row in rows if row.step < 2] for rank, rows in CLEAN.items()}
    whole = write_launch(tmp_path, 0, CLEAN)
    ended = write_launch(tmp_path, 1, cut, Writing(outcome="failed", end=None))
    verdict = verdict_on([whole, ended])
    assert verdict["verdict"] == "NOT_JUDGED"
    data = data_in(page_of([whole, ended], verdict))
    assert cells(data) == {}
    assert all(set(row["signs"]) == {"=", "."} for row in data["rows"])


def test_one_launch_has_no_map_and_its_losses() -> None:
    source = page_of([launch_of(CLEAN)])
    assert 'id="data"' not in source
    assert "One launch: there is nothing to compare it with" in source
    assert source.count("<polyline") == 3


def test_the_golden_is_told_with_what_moved_and_how_it_is_accepted() -> None:
    launches = pair()[:1]
    outcome = GoldenOutcome(
        state="stale",
        told="the golden <b>goldens/a.arrows</b> is stale",
        path="goldens",
        level="step",
        file="goldens/a.arrows",
        accept="torchrun -m ddp_repro.check golden.accept=true",
        moved=(FieldDifference(field="experiment.seed", values=[0, None]),),
        unused=("goldens/b.arrows",),
        code=({"git_commit": "abc"}, {"git_commit": "def"}),
    )
    judged = replace(judge(launches, Rules()), golden=outcome)
    page = page_of(launches, verdict_document(judged, Context(run=RunFolder(Path("runs/1")), command="c")))
    told = page.partition('id="golden"')[2].partition("</section>")[0]
    for part in (
        "<b>stale</b>",
        "&lt;b&gt;goldens/a.arrows",
        "0 in the golden, unset now",
        "goldens/b.arrows",
        "abc",
        "def",
    ):
        assert part in told, part
    assert "<pre>torchrun -m ddp_repro.check golden.accept=true</pre>" in told
    assert "One launch, held against a golden: there is no map." in page


def test_a_finding_that_the_traces_do_not_show_is_said() -> None:
    launches = pair()
    verdict = verdict_on(launches)
    verdict["findings"][0]["step"] = 1
    assert "The traces show the first difference at step 2, and the verdict tells one at step 1" in page_of(
        launches, verdict
    )
    assert "the verdict counts" not in page_of(launches)


def test_keys_that_it_does_not_know_are_shown() -> None:
    launches = pair()
    verdict = verdict_on(launches)
    verdict["findings"][0]["cures"] = ["a <cure>"]
    verdict["rate"] = {"seen": 0.2}
    told = Text(page_of(launches, verdict)).text
    assert '["a <cure>"]' in told
    assert '{"seen": 0.2}' in told


HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; alert(1); //",
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "\u202egpj.exe",
    "a\x00b\x1b[31m\u2028c",
    "\ud800",
    "&lt;b&gt;",
    "x" * 5000,
)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_comes_from_files_is_text(name: str) -> None:
    other = {**CLEAN, 0: changed(CLEAN[0], step=1, phase="loss")}
    both = [
        {rank: [replace(row, name=name) if row.phase == "loss" else row for row in rows] for rank, rows in one.items()}
        for one in (CLEAN, other)
    ]
    launches = [launch_of(one, index=number) for number, one in enumerate(both)]
    verdict = verdict_on(launches)
    verdict |= {"notes": [name], "problems": [], "command": name, "folder": name, "level": name, name: name}
    verdict["findings"][0] |= {"message": name, "advice": name, "operator": name, "source": name, "title": name}
    verdict["identity"]["differences"] = [{"field": name, "values": [name, None], "allowed": True}]
    source = page(verdict, {"software": {name: name}, "provenance": {name: [name]}}, Loaded.of(launches))
    plain = Text(source)
    assert [tag for tag, _ in plain.tags].count("script") == 2
    assert not [tag for tag, _ in plain.tags if tag in ("img", "b", "iframe", "link", "object")]
    assert not [key for _, held in plain.tags for key in held if key.startswith("on")]
    assert "\u202e" not in source
    assert "\x1b" not in source
    assert "\x00" not in source
    assert "49" not in plain.text or "{{ 7" not in name
    kept = name if len(name) <= 160 else name[:159] + "…"
    assert kept in data_in(source)["names"]
    source.encode("utf-8", "backslashreplace")


def test_nothing_is_loaded_from_anywhere() -> None:
    source = page_of(pair())
    tags = Text(source).tags
    assert not [held for _, held in tags if {"src", "href", "srcset", "action"} & held.keys()]
    assert "url(" not in source
    assert "@import" not in source
    assert not re.search(r"https?://", source)
    (policy,) = [held["content"] for _, held in tags if held.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_pages_from_files_and_from_memory_are_the_same(tmp_path: Path) -> None:
    launches = [write_launch(tmp_path, 0, CLEAN), write_launch(tmp_path, 1, DIVERGED)]
    run = RunFolder(tmp_path)
    judged = judge(launches, Rules())
    write_json(run.verdict, verdict_document(judged, Context(run=run, command="c")))
    assert write_page(run, Loaded.of(launches)) == run.report
    from_memory = run.report.read_text()
    write_page(run)
    assert run.report.read_text() == from_memory
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    write_page(RunFolder(moved))
    assert cells(data_in((moved / "report.html").read_text())) == cells(data_in(from_memory))
    moved.rename(tmp_path)


def test_traces_that_are_gone_are_said_and_the_verdict_is_still_told(tmp_path: Path) -> None:
    launches = [write_launch(tmp_path, 0, CLEAN), write_launch(tmp_path, 1, DIVERGED)]
    run = RunFolder(tmp_path)
    verdict = verdict_on(launches)
    write_json(run.verdict, verdict)
    trace = run.launch(1).trace(2)
    trace.write_bytes(b"no trace")
    told = page(verdict, {}, Files({0: run.launch(0).path, 1: run.launch(1).path}))
    assert "launch 1, rank 2:" in told
    assert {rank for rank, _ in cells(data_in(told))} == {"0", "1"}
    told = page(verdict, {}, Files({0: tmp_path / "gone-0", 1: tmp_path / "gone-1"}))
    assert "there is no map" in told
    assert verdict["findings"][0]["advice"] in Text(told).text


def test_a_run_without_a_verdict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReproError, match="missing"):
        write_page(RunFolder(tmp_path))
    write_json(RunFolder(tmp_path).verdict, {"schema": 2})
    with pytest.raises(ReproError, match="no verdict of this version"):
        write_page(RunFolder(tmp_path))


def of_rank(rank: int, differs: dict[int, int], steps: int) -> OfRank:
    first = np.full(steps + 1, SAME, np.int64)
    count = np.zeros(steps + 1, np.int64)
    for step, place in differs.items():
        first[step + 1], count[step + 1] = place, 7
    name = np.where(first >= 0, np.arange(steps + 1) % 3, -1)
    return OfRank(rank=rank, first=first, name=name, names=["a", "b", "c"], count=count, chain={})


@pytest.mark.parametrize("steps", [1, 479, 480, 481, 10_000, 1_000_003])
def test_joined_steps_keep_the_first_difference_exactly(steps: int) -> None:
    draws = np.random.default_rng(steps)
    places = sorted(CALLED)
    differs = {int(step): places[int(draws.integers(len(places)))] for step in draws.integers(0, steps, 40)}
    drawn = grid([of_rank(5, differs, steps)])
    assert len(drawn.data["spans"]) <= 481
    assert (drawn.cut != "") == (steps > 480)
    spans = drawn.data["spans"]
    assert spans[0] == (-1, -1)
    assert [begin for begin, _ in spans[1:]] == [end + 1 for _, end in spans[:-1]]
    assert spans[-1][1] == steps - 1
    expected = {}
    for begin, end in spans:
        inside = sorted(step for step in differs if begin <= step <= end)
        if inside:
            cell = [inside[0], 5, "abc".index("abc"[(inside[0] + 1) % 3]), 7, len(inside)]
            expected["5", begin] = (CALLED[differs[inside[0]]], cell)
    names = drawn.data["names"]
    found = cells(drawn.data)
    assert {
        key: (phase, [*cell[:2], "abc".index(names[cell[2]]), *cell[3:]]) for key, (phase, cell) in found.items()
    } == (expected)


def test_joined_ranks_keep_the_first_difference_exactly() -> None:
    many = [of_rank(rank, {100 - rank % 7: 6} if rank % 10 == 3 else {}, 200) for rank in range(300)]
    drawn = grid(many)
    assert len(drawn.data["rows"]) <= 128
    assert "3 ranks" in drawn.cut
    assert sum(len(row["cells"]) for row in drawn.data["rows"]) == 30
    assert [row["label"] for row in drawn.data["rows"][:2]] == ["0 to 2", "3 to 5"]


def test_an_axis_has_a_column_for_what_precedes_the_first_step() -> None:
    assert axis(-1, 3, 480).spans == [(-1, -1), (0, 0), (1, 1), (2, 2), (3, 3)]
    assert axis(5, 9, 2).spans == [(5, 7), (8, 9)]


def test_thinned_curves_keep_their_peaks_and_ends() -> None:
    step, value = np.arange(10_000), np.random.default_rng(0).standard_normal(10_000)
    value[1234], value[8765], value[77] = 50, -50, np.nan
    at, kept = thinned(step, value, 200)
    assert len(at) <= 202
    assert (float(np.nanmax(kept)), float(np.nanmin(kept))) == (50.0, -50.0)
    assert (at[0], at[-1]) == (0, 9999)
    assert (np.diff(at) > 0).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_distances_of_many_are_those_of_each(dtype: str) -> None:
    draws = np.random.default_rng(3)
    a = np.concatenate([draws.standard_normal(50), [0.0, -0.0, 1.0, np.nan, np.inf, -1e-3]])
    b = np.concatenate([draws.standard_normal(50), [-0.0, 1e-3, np.nextafter(1, 2), 1.0, 1.0, 1e-3]])
    for left, right, found in zip(a, b, ulps_between(dtype, a, b), strict=True):
        known = distance_between(f"{dtype}[]", left, right)
        if known is None:
            assert found == 0
        elif known.max_ulp is None or not (math.isfinite(left) and math.isfinite(right)):
            assert math.isnan(found)
        else:
            assert found == known.max_ulp


def test_losses_that_are_no_numbers_are_counted_and_not_drawn() -> None:
    rows = [replace(row, value=math.nan) if row.phase == "loss" and row.step == 1 else row for row in CLEAN[0]]
    source = page_of([launch_of({**CLEAN, 0: rows}, index=number) for number in range(2)])
    assert "2 losses are infinite or not a number, and not drawn" in source
    assert "nan" not in "".join(re.findall(r'points="([^"]*)"', source))


def test_the_distance_of_losses_is_told_in_ulp() -> None:
    def moved(value: float | None) -> float:
        return float(np.nextafter(np.float32(value or 0), np.float32(9)))

    start = [
        replace(row, value=float(np.float32(row.value))) if row.phase == "loss" and row.value else row
        for row in CLEAN[0]
    ]
    other = [
        replace(row, value=moved(row.value), content="moved") if row.phase == "loss" and row.step == 3 else row
        for row in start
    ]
    launches = [launch_of({**CLEAN, 0: start}, index=0), launch_of({**CLEAN, 0: other}, index=1)]
    verdict = verdict_on(launches)
    distance = verdict["findings"][0]["distance"]
    assert (distance["max_ulp"], distance["elements"], distance["of"]) == (1, 1, 1)
    source = page_of(launches, verdict)
    assert "1 ULP at most, 1 of 1 element" in source
    assert "largest distance of two losses, in ULP" in source.replace("Largest", "largest")


def with_distance(distance: Distance) -> str:
    launches = [launch_of(CLEAN, index=0), launch_of(DIVERGED, index=1)]
    verdict = verdict_on(launches)
    verdict["findings"][0]["distance"] = json.loads(json.dumps(asdict(distance)))
    return page_of(launches, verdict)


def test_the_elements_that_differ_are_told_and_drawn() -> None:
    a = np.ones(64, np.float32)
    b = a.copy()
    b[:40], b[40:45] = np.nextafter(np.float32(1), np.float32(2)), 2.0
    found = distance_of(*(Stored(dtype="F32", shape=(8, 8), data=one.tobytes()) for one in (a, b)))
    assert found is not None
    source = with_distance(found)
    assert "8,388,608 ULP at most, 1 in the median, 45 of 64 elements, 1 at most, 0.5 relative" in source
    assert "[0, 4]" in source
    assert source.count("0x3f800001") == 5
    rows = re.findall(r'<th scope="row">([^<]*ULP)</th><td class="number">(\d+)</td>.*?<rect width="(\d+)"', source)
    assert (rows[0], rows[-1], len(rows)) == (
        ("1 ULP", "40", "100"),
        ("8,388,608 to 16,777,215 ULP", "5", "12"),
        24,
    )


def test_a_distance_of_one_element_that_is_no_number_is_told() -> None:
    found = distance_between("float32[]", math.nan, 1.0)
    assert found is not None
    source = with_distance(found)
    assert "1 of 1 element; 1 pair with a NaN" in source
    assert 'class="bars"' not in source


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_phases_stand_out_from_the_page_and_from_equal_cells(theme: str) -> None:
    colours = COLOURS[theme]
    assert len(set(colours.values())) == len(CALLED)
    for colour in colours.values():
        assert contrast(colour, SURFACES[theme]) >= 3
        assert contrast(colour, EQUAL[theme]) >= 3


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)
