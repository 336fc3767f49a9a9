"""Every kind of run has a page that renders in a real browser and tells the numbers of its ``verdict.json``."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.judge.findings import Finding, GoldenOutcome, Judgement, Variant
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.judge.resume_judgement import Stretch, judge_resumed
from ddp_repro.report.html.page import write_page
from ddp_repro.report.html.source import Loaded
from ddp_repro.report.pages import write_again
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.trace.document import write_json
from ddp_repro.trace.launch import Launch, Parting
from ddp_repro.trace.layout import RunFolder
from tests.browser import MARKS, Browser
from tests.command import TINY, run
from tests.pages import assert_shows
from tests.unit.synthetic import Ranks, Script, Writing, changed, cut, from_step, launch_of, ranks, write_launch
from tests.unit.test_judge_resume import STRAIGHT, gone_on, stopped

pytestmark = MARKS

CLEAN = ranks(Script(world_size=3))
OTHER: Ranks = {rank: from_step(rows, 2, "grad_reduced") for rank, rows in CLEAN.items()}
OTHER[1] = changed(OTHER[1], step=2, phase="grad_local", name="head.weight")
NOTHING: Ranks = {rank: [] for rank in CLEAN}
ENDS = {rank: {"param": {"a": "00", "b": "01"}, "buffer": {"m": f"{rank:02}"}} for rank in CLEAN}
OTHER_ENDS = {**ENDS, 1: {**ENDS[1], "param": {"a": "00", "b": "ff"}}}
OBSERVED = Variant(overrides=(), launches=(0,), allow=())
OFF = Variant(overrides=("capture=off",), launches=(1,), allow=())


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile"), timeout_s=600) as opened:
        opened.size(1100, 900)
        yield opened


Made = tuple[Sequence[Launch], Judgement]


def _judged(launches: Sequence[Launch], **rules: Any) -> Made:
    return launches, judge(launches, Rules(reproduce="the command", **rules))


def _unobserved(root: Path, ends: dict[int, Any]) -> Made:
    one = write_launch(root, 0, CLEAN, Writing(finals=ENDS))
    other = write_launch(root, 1, NOTHING, Writing(finals=ends, capture="off"))
    return _judged([one, other], variants=(OBSERVED, OFF))


def _all_off(root: Path) -> Made:
    return _judged([write_launch(root, at, NOTHING, Writing(capture="off", finals=ENDS)) for at in range(2)])


def _twins(_root: Path) -> Made:
    launches = [launch_of(CLEAN), launch_of(CLEAN, index=1), launch_of(OTHER, index=2), launch_of(OTHER, index=3)]
    variants = (replace(OBSERVED, launches=(0, 1)), Variant(overrides=("a=1", "b=2"), launches=(2, 3), allow=()))
    return _judged(launches, variants=variants)


def _not_started(root: Path) -> Made:
    (root / "launch-0").mkdir()
    none = replace(launch_of(NOTHING), traces={}, identities={}, problems=["launch 0 failed: rank 0 raised <b>"])
    return _judged([replace(none, path=root / "launch-0")], expected=2)


def _two_runs(root: Path) -> Made:
    """As `compare` has them: launches of two runs, which both begin at 0."""
    runs = [write_launch(root / name, 0, rows) for name, rows in (("a", CLEAN), ("b", OTHER))]
    return _judged([replace(launch, index=number) for number, launch in enumerate(runs)])


def _resumed(_root: Path) -> Made:
    resumed = {rank: changed(rows, step=0, phase="boundary", name="scaler.scale") for rank, rows in gone_on(4).items()}
    launches = [launch_of(STRAIGHT), launch_of(stopped(4), index=1), launch_of(resumed, index=2)]
    return launches, judge_resumed(launches, STRETCHES, Rules(reproduce="the command"))


STRETCHES = (Stretch(launch=1, begins=0, stops=4), Stretch(launch=2, begins=4))


def _golden(_root: Path) -> Made:
    launches = [launch_of(CLEAN)]
    outcome = GoldenOutcome(
        state="changed", told="goldens/a.arrows holds something else", path="goldens", level="step",
        file="goldens/a.arrows", obtained="goldens/a.obtained.arrows", accept="check golden.accept=true",
    )  # fmt: skip
    found = Finding(
        witness="golden", severity="error", cause="optimizer", title="the optimizer steps otherwise", launches=(0,),
        step=3, ranks=(0, 1, 2), phase="param", name="conv.bias", message="it is another one", advice="accept it",
    )  # fmt: skip
    judged = judge(launches, Rules())
    return launches, replace(judged, golden=outcome, findings=[found], problems=[])


def _ended_early(_root: Path) -> Made:
    parting = Parting(reference=0, step=2, ranks=(1,), phase="grad_local", name="head.weight")
    whole = launch_of(OTHER, index=1)
    rows = {rank: sum(row.step < 4 for row in own) for rank, own in OTHER.items()}
    return _judged([launch_of(CLEAN), cut(whole, rows, parting=parting)])


KINDS: dict[str, tuple[Callable[[Path], Made], str]] = {
    "twins, one not observed": (lambda root: _unobserved(root, ENDS), "REPRODUCIBLE"),
    "twins, one not observed, with another end": (lambda root: _unobserved(root, OTHER_ENDS), "DIVERGED"),
    "nothing observed": (_all_off, "NOT_JUDGED"),
    "twins": (_twins, "DIVERGED"),
    "no launch": (lambda _root: _judged([], expected=2), "NOT_JUDGED"),
    "a launch without traces": (_not_started, "NOT_JUDGED"),
    "compare": (_two_runs, "DIVERGED"),
    "resume": (_resumed, "DIVERGED"),
    "golden": (_golden, "NOT_JUDGED"),
    "ended early": (_ended_early, "DIVERGED"),
    "many equal launches": (lambda _root: _judged([launch_of(CLEAN, index=at) for at in range(10)]), "REPRODUCIBLE"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_tells_its_verdict(kind: str, browser: Browser, tmp_path: Path) -> None:
    make, verdict = KINDS[kind]
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    launches, judged = make(folder.path)
    assert judged.verdict.value == verdict
    stretches = STRETCHES if kind == "resume" else ()
    document = verdict_document(judged, Context(run=folder, command="the command", stretches=stretches))
    write_json(folder.verdict, document)
    write_page(folder, Loaded.of(launches))
    _assert_opens(browser, folder)


def test_a_page_that_tells_another_number_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    launches, judged = _twins(tmp_path)
    write_json(folder.verdict, verdict_document(judged, Context(run=folder, command="the command")))
    write_page(folder, Loaded.of(launches))
    verdict = _assert_opens(browser, folder)
    first = verdict["findings"][0]
    others = [
        {"observations": verdict["observations"] + 1},
        {"classes": [[0], [1, 2, 3]]},
        {"problems": ["a reason that it does not give"]},
        {"chance": {"launches": 4, "rate": 0.5, "missed": 0.125}},
        *(
            {"findings": [{**first, key: value}]}
            for key, value in (("step", 3), ("ranks", [2]), ("message", "not this one"))
        ),
    ]
    for other in others:
        try:
            assert_shows(browser, {**verdict, **other})
        except AssertionError:
            continue
        pytest.fail(f"{other} was not noticed")


def _assert_opens(browser: Browser, folder: RunFolder) -> dict[str, Any]:
    browser.loaded.clear()
    browser.open(folder.report)
    verdict: dict[str, Any] = json.loads(folder.verdict.read_text())
    assert_shows(browser, verdict)
    assert set(browser.loaded) == {folder.report.as_uri()}
    return verdict


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.timeout(600)
def test_pages_of_real_runs_tell_their_verdicts(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where compare was called, whose launches lie elsewhere
    script = Path(__file__).parents[1] / "scripts" / "endings.py"
    runs = {
        "off": ["check", *TINY, "nproc=3", "capture=off"],
        "twins": ["check", *TINY, "nproc=3", 'twins=[[],["capture=off"],["seed=1"]]'],
        "equal": ["check", *TINY, "nproc=3"],
        "seed": ["check", *TINY, "nproc=3", "launches=1", "seed=1"],
        "both": ["compare", "runs=[equal,seed]"],
        "allowed": ["compare", "runs=[equal,seed]", "compare.allow=[experiment.seed]"],
        "resumed": ["resume", *TINY, "nproc=3", "resume.at=[2]"],
        "golden": ["check", *TINY, "nproc=3", "launches=1", "golden.path=goldens"],
        "fails": ["check", "nproc=3", "workload=script", f"workload.path={script}", "workload.args=raise"],
    }
    verdicts = {}
    for name, words in runs.items():
        done = run(*words, f"output.dir={name}", cwd=tmp_path)
        assert done.verdict is not None, done.stdout + done.stderr
        folder = RunFolder(tmp_path / name)
        verdicts[name] = _assert_opens(browser, folder)["verdict"]
        written = folder.report.read_text()
        write_again(folder)
        assert folder.report.read_text() == written, name
    assert verdicts == {
        "off": "NOT_JUDGED", "twins": "DIVERGED", "equal": "REPRODUCIBLE", "seed": "NOT_JUDGED", "both": "NOT_JUDGED",
        "allowed": "DIVERGED", "resumed": "REPRODUCIBLE", "golden": "NOT_JUDGED", "fails": "NOT_JUDGED",
    }  # fmt: skip
