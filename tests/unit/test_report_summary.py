import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.errors import Verdict
from ddp_repro.report.summary import Row, as_markdown, overall, print_summary, read_row, summary_document, write_summary
from ddp_repro.trace.layout import SummaryFiles

FINDING = {
    "severity": "error", "step": 3, "ranks": [1], "phase": "grad_local", "name": "a.weight",
    "title": "nondeterministic operator in backward", "cause": "backward-operator",
}  # fmt: skip
ROW = Row(overrides=("nproc=3",), verdict=Verdict.REPRODUCIBLE, first="", folder="runs/0/0")


def write_verdict(folder: Path, verdict: str, **keys: Any) -> Path:
    folder.mkdir()
    document = {
        "schema": 1, "verdict": verdict, "problems": [], "findings": [],
        "command": "torchrun -m ddp_repro.check nproc=3 'a.b=\"x y\"' output.dir=elsewhere",
    }  # fmt: skip
    (folder / "verdict.json").write_text(json.dumps({**document, **keys}))
    return folder


def test_a_run_that_is_reproducible(tmp_path: Path) -> None:
    folder = write_verdict(tmp_path / "run", "REPRODUCIBLE", findings=[{**FINDING, "severity": "warning"}])
    row = read_row(folder)
    assert row == Row(overrides=("nproc=3", 'a.b="x y"'), verdict=Verdict.REPRODUCIBLE, first="", folder=str(folder))


def test_a_run_that_diverged_is_told_by_its_first_error(tmp_path: Path) -> None:
    findings = [{**FINDING, "severity": "warning", "name": "other"}, FINDING, {**FINDING, "step": 9}]
    row = read_row(write_verdict(tmp_path / "run", "DIVERGED", findings=findings), ["seed=1"])
    assert row.verdict is Verdict.DIVERGED
    assert row.overrides == ("seed=1",)
    assert (
        row.first == "step 3, rank 1, grad_local, a.weight: nondeterministic operator in backward [backward-operator]"
    )


def test_a_finding_without_a_place(tmp_path: Path) -> None:
    bare = {**FINDING, "step": -1, "ranks": [], "phase": None, "name": None}
    assert read_row(write_verdict(tmp_path / "run", "DIVERGED", findings=[bare])).first.startswith("before step 0: non")
    bare["step"] = None
    assert read_row(write_verdict(tmp_path / "other", "DIVERGED", findings=[bare])).first.startswith("nondeterministic")


def test_a_run_that_was_not_judged_is_told_by_its_reason(tmp_path: Path) -> None:
    row = read_row(
        write_verdict(tmp_path / "run", "NOT_JUDGED", problems=["launch 0 failed", "more"], findings=[FINDING])
    )
    assert (row.verdict, row.first) == (Verdict.NOT_JUDGED, "launch 0 failed")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is missing"),
        ("", "is not JSON"),
        ('{"verdict": "REPRODUC', "is not JSON"),
        ("[]", "no JSON object"),
        ("{}", "not one of this project"),
        ('{"verdict": "FINE", "command": ""}', "not one of this project"),
        ('{"verdict": "DIVERGED", "command": "", "findings": 3}', "not one of this project"),
        ('{"verdict": "DIVERGED", "command": "", "findings": [1]}', "not one of this project"),
        ('{"verdict": "REPRODUCIBLE"}', "not one of this project"),
        ('{"verdict": "REPRODUCIBLE", "command": "x \'"}', "not one of this project"),
    ],
)
def test_a_run_without_a_verdict_is_not_judged(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "verdict.json").write_text(content)
    row = read_row(tmp_path)
    assert row.verdict is Verdict.NOT_JUDGED
    assert told in row.first


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([], Verdict.NOT_JUDGED),
        ([None, None], None),
        (["REPRODUCIBLE", None], Verdict.REPRODUCIBLE),
        (["REPRODUCIBLE", "NOT_JUDGED", None], Verdict.NOT_JUDGED),
        (["NOT_JUDGED", "DIVERGED", "REPRODUCIBLE"], Verdict.DIVERGED),
    ],
)
def test_the_worst_verdict_is_that_of_all(verdicts: list[str | None], worst: Verdict | None) -> None:
    rows = [replace(ROW, verdict=None if verdict is None else Verdict(verdict)) for verdict in verdicts]
    assert overall(rows) is worst
    assert summary_document(rows, "c")["exit_code"] == (worst.exit_code if worst else 0)


def test_the_documents_say_the_same(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, overrides=("nproc=3", "seed=1"), verdict=Verdict.DIVERGED, first="a|b\n*c*")]
    write_summary(SummaryFiles(tmp_path), rows, "torchrun -m ddp_repro.check -m seed=0,1")
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["verdict"] == "DIVERGED"
    assert document["exit_code"] == 1
    assert document["command"] == "torchrun -m ddp_repro.check -m seed=0,1"
    assert document["runs"][1] == {
        "overrides": ["nproc=3", "seed=1"], "verdict": "DIVERGED", "first": "a|b\n*c*", "folder": "runs/0/0",
    }  # fmt: skip
    table = (tmp_path / "summary.md").read_text()
    assert table == as_markdown(rows)
    assert table.splitlines()[0] == "2 runs: 1 REPRODUCIBLE, 1 DIVERGED."
    assert table.splitlines()[-1] == r"| seed=1 | DIVERGED | a\|b\\n\*c\* | runs/0/0 |"  # what all have is left out


def test_the_last_line_is_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary([ROW, replace(ROW, verdict=Verdict.NOT_JUDGED, first="[red]why[/red]")], None)
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "NOT_JUDGED"
    assert "[red]why[/red]" in told
    print_summary([replace(ROW, verdict=None)], None)
    assert capsys.readouterr().out.splitlines()[-1] == "1 run: 1 recorded"
