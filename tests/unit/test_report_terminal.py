import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ddp_repro.errors import ReproError, Verdict
from ddp_repro.judge.findings import Distance, FieldDifference, Finding, GoldenOutcome, Judgement
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.report.terminal import print_error, print_recorded, print_report, print_verdict, render
from ddp_repro.report.verdict import Context, verdict_document
from ddp_repro.trace.layout import RunFolder
from tests.unit.synthetic import Script, changed, launch_of, ranks

CLEAN = ranks(Script(world_size=3))
CONTEXT = Context(run=RunFolder(Path("runs/12")), command="torchrun -m ddp_repro.check nproc=3 workload=text")
FINDING = Finding(
    witness="launches",
    severity="error",
    cause="backward-operator",
    title="nondeterministic operator in backward",
    launches=(0, 1),
    step=3,
    ranks=(2,),
    phase="grad_local",
    name="blocks.0.attention.position.table",
    names=("blocks.0.attention.position.table",),
    message="the gradient differs before any reduction, while the loss is equal",
    advice="set determinism=debug, or torch.use_deterministic_algorithms(True) in your own script",
    reproduce="torchrun -m ddp_repro.check nproc=3 workload=text",
)


def judgement(verdict: Verdict = Verdict.DIVERGED, **parts: Any) -> Judgement:
    made: dict[str, Any] = {
        "classes": [[0, 2], [1]],
        "findings": [FINDING],
        "problems": [],
        "notes": [],
        "identity": "0123456789abcdef0123456789abcdef",
        "observations": 123456,
        "folders": {index: f"runs/12/launch-{index}" for index in range(3)},
    }
    return Judgement(verdict=verdict, **{**made, **parts})


def printed(judged: Judgement, *, width: int = 80, **options: Any) -> str:
    file = io.StringIO()
    render(judged, CONTEXT, Console(file=file, width=width, height=24, **options))
    return file.getvalue()


def test_one_finding_fits_one_screen_with_everything_in_it() -> None:
    text = printed(judgement())
    lines = text.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) < 80
    assert lines[-1] == "DIVERGED"
    told = " ".join(text.split())
    for part in (
        "launches 0 and 1, step 3, rank 2, grad_local, blocks.0.attention.position.table",
        "nondeterministic operator in backward [backward-operator]",
        FINDING.message,
        FINDING.advice,
        FINDING.reproduce,
        "launches of equal bits: [0, 2] and [1]",
        "runs/12/verdict.json, traces in launch-<i> beside it",
    ):
        assert part in told


def test_a_long_finding_is_cut_and_says_so() -> None:
    long = replace(FINDING, message="word " * 400, advice="change " * 200, name="layer." * 60)
    text = printed(judgement(findings=[long], notes=["a note"] * 3))
    assert len(text.splitlines()) <= 24
    assert text.count("… (verdict.json)") == 3
    assert max(map(len, text.splitlines())) < 80


@pytest.mark.parametrize("count", [1, 5, 200])
def test_lists_are_cut_to_one_screen_and_what_was_cut_is_said(count: int) -> None:
    warnings = [replace(FINDING, severity="warning", name=f"w{at}") for at in range(count)]
    others = [replace(FINDING, name=f"e{at}") for at in range(count)]
    text = printed(
        judgement(
            findings=[FINDING, *others, *warnings],
            notes=[f"note {at}" for at in range(count)],
            problems=[f"problem {at}" for at in range(count)],
        )
    )
    assert len(text.splitlines()) <= 24
    if count > 1:
        assert "not shown here: see verdict.json" in text
    shown = sum(f"problem {at}" in text.split("\n")[line] for line in range(len(text.split("\n"))) for at in [0])
    assert shown <= 1


def test_problems_of_a_run_that_was_not_judged_come_first() -> None:
    text = printed(judgement(Verdict.NOT_JUDGED, findings=[], classes=[], problems=["world size 2 against 4"]))
    assert "problem    world size 2 against 4" in text
    assert text.splitlines()[-1] == "NOT_JUDGED"
    assert "first" not in text


def test_warnings_and_notes_stand_under_a_clean_verdict() -> None:
    warning = replace(FINDING, severity="warning", cause="correlated-noise", message="the same noise")
    text = printed(judgement(Verdict.REPRODUCIBLE, findings=[warning], classes=[[0, 1, 2]], notes=["padding"]))
    assert "warning    launches 0 and 1, step 3, rank 2" in text
    assert "note       padding" in text
    assert "first " not in text
    assert "classes" not in text
    assert text.splitlines()[-1] == "REPRODUCIBLE"


def test_is_plain_where_it_is_no_terminal_and_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed(judgement())
    coloured = printed(judgement(), force_terminal=True, color_system="standard")
    assert "\x1b[1;31mDIVERGED" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(judgement(), force_terminal=True, color_system="standard")


@pytest.mark.parametrize(
    "name", ["[red]x[/red]", "[/]", "\x1b[31mx", "a\nb\rc", "[link=http://x]y", "\u202eabc", "{0}%s"]
)
def test_names_cannot_inject_markup_or_escapes(name: str) -> None:
    text = printed(judgement(findings=[replace(FINDING, name=name, message=name, advice=name)]), force_terminal=True)
    assert "\x1b[31mx" not in text
    assert "\u202e" not in text
    assert name.replace("\x1b", "\\x1b").replace("\n", "\\n").replace("\r", "\\r").replace("\u202e", "\\u202e") in text


def test_narrow_terminals_are_wrapped() -> None:
    assert max(map(len, printed(judgement(), width=50).splitlines())) < 50


def test_everything_that_is_printed_is_in_the_document() -> None:
    launches = [
        launch_of(CLEAN, index=0),
        launch_of({**CLEAN, 1: changed(CLEAN[1], step=1, phase="loss")}, index=1),
    ]
    judged = judge(launches, Rules(reproduce="the command"))
    document = json.dumps(verdict_document(judged, CONTEXT), ensure_ascii=False)
    (finding,) = judged.findings
    for part in (finding.title, finding.message, finding.advice, finding.name, finding.cause, "the command"):
        assert part in document
    assert judged.identity in document


def test_the_document_has_the_promised_keys() -> None:
    found = replace(
        FINDING, distance=Distance(max_ulp=3, elements=1, of=1), operator="aten::index", source="text.py:57"
    )
    judged = judgement(
        findings=[found],
        identity_differences=[FieldDifference(field="experiment.world_size", values=[2, 4])],
    )
    document = json.loads(json.dumps(verdict_document(judged, CONTEXT)))
    assert document["schema"] == 1
    assert (document["verdict"], document["exit_code"]) == ("DIVERGED", 1)
    assert (document["command"], document["level"]) == (CONTEXT.command, "same-stack")
    assert document["classes"] == [[0, 2], [1]]
    assert document["identity"]["differences"] == [
        {"field": "experiment.world_size", "values": [2, 4], "allowed": False}
    ]
    assert document["launches"][1] == {"launch": 1, "folder": "runs/12/launch-1"}
    (one,) = document["findings"]
    assert {key: one["distance"][key] for key in ("max_ulp", "elements", "of")} == {
        "max_ulp": 3,
        "elements": 1,
        "of": 1,
    }
    assert (one["ranks"], one["launches"], one["step"]) == ([2], [0, 1], 3)
    assert set(asdict(found)) == set(one)
    placeless = verdict_document(judgement(findings=[replace(FINDING, step=None, phase="", name="")]), CONTEXT)
    assert placeless["findings"][0]["phase"] is None
    assert placeless["findings"][0]["name"] is None


def test_every_key_of_the_document_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()
    document = verdict_document(
        judgement(findings=[replace(FINDING, distance=Distance(max_ulp=1, elements=1, of=1))]), CONTEXT
    )
    keys = {*document, *document["identity"], *document["findings"][0], *document["findings"][0]["distance"]}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_every_cause_is_documented() -> None:
    from ddp_repro.judge.causes import CAUSES  # noqa: PLC0415

    text = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()
    assert {cause for cause in CAUSES if f"`{cause}`" not in text} == set()


def test_the_report_goes_to_stdout_and_errors_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(judgement(), CONTEXT)
    print_verdict(Verdict.NOT_JUDGED)
    print_recorded(launch_of(CLEAN))
    out, err = capsys.readouterr()
    assert err == ""
    assert "DIVERGED\nNOT_JUDGED\nrecorded" in out
    print_error(ReproError("no [such] key", hint="look at --cfg job"))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: no [such] key\nlook at --cfg job\n")


ACCEPT = (
    "torchrun -m ddp_repro.check workload=script " + "workload.path=a/long/path/to/train.py " * 6 + "golden.accept=true"
)
CHANGED = GoldenOutcome(
    state="changed",
    told="goldens/0123456789abcdef.arrows holds something else; it was made at commit aaaaaaaaaa, and this is bbbbb",
    path="goldens",
    level="step",
    file="goldens/0123456789abcdef.arrows",
    obtained="goldens/0123456789abcdef.obtained.arrows",
    accept=ACCEPT,
)


def test_what_became_of_the_golden_is_told_and_how_it_is_accepted_in_full() -> None:
    found = replace(FINDING, witness="golden", launches=(0,), name="", names=())
    told = " ".join(printed(judgement(findings=[found], classes=[[0]], golden=CHANGED)).split())
    assert "golden goldens/0123456789abcdef.arrows holds something else; it was made at commit aaaaaaaaaa" in told
    assert "obtained: goldens/0123456789abcdef.obtained.arrows" in told
    assert f"accept {ACCEPT}" in told
    assert "reproduce" not in told
    assert "launch 0, step 3, rank 2, grad_local" in told


def test_a_golden_that_is_a_reason_not_to_judge_is_told_once() -> None:
    stale = replace(CHANGED, state="stale", told="the golden is stale: seed 0 against 1")
    text = printed(judgement(Verdict.NOT_JUDGED, findings=[], problems=[stale.told], golden=stale))
    assert text.count("seed 0 against 1") == 1
    assert "golden     stale: goldens/0123456789abcdef.arrows" in text
