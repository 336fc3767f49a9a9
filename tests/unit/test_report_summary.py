import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.errors import ExitCode, Verdict
from ddp_repro.report.summary import (
    Row,
    as_markdown,
    overall,
    print_summary,
    read_row,
    summary_document,
    worst,
    write_summary,
)
from ddp_repro.trace.layout import SummaryFiles

FINDING = {
    "severity": "error", "step": 3, "ranks": [1], "phase": "grad_local", "name": "a.weight",
    "title": "nondeterministic operator in backward", "cause": "backward-operator",
}  # fmt: skip
ROW = Row(overrides=("nproc=3",), verdict="REPRODUCIBLE", code=ExitCode.REPRODUCIBLE, first="", folder="runs/0/0")


def ended(verdict: str | None, **changes: Any) -> Row:
    code = ExitCode.REPRODUCIBLE if verdict is None else Verdict(verdict).exit_code
    return replace(ROW, verdict=verdict, code=code, **changes)


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
    assert row == replace(ROW, overrides=("nproc=3", 'a.b="x y"'), folder=str(folder))


def test_a_run_that_diverged_is_told_by_its_first_error(tmp_path: Path) -> None:
    findings = [{**FINDING, "severity": "warning", "name": "other"}, FINDING, {**FINDING, "step": 9}]
    row = read_row(write_verdict(tmp_path / "run", "DIVERGED", findings=findings), ["seed=1"])
    assert (row.verdict, row.code) == ("DIVERGED", 1)
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
    assert (row.verdict, row.first) == ("NOT_JUDGED", "launch 0 failed")


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
    assert (row.verdict, row.code) == ("NOT_JUDGED", 2)
    assert told in row.first


@pytest.mark.parametrize(
    ("verdict", "code", "told"),
    [("MEASURED", 0, "2.5 % more"), ("WORSE", 1, "2.5 % more"), ("NOT_JUDGED", 2, "a launch failed")],
)
def test_a_run_that_measured_has_a_word_of_its_own(tmp_path: Path, verdict: str, code: int, told: str) -> None:
    keys = {"kind": "cost", "exit_code": code, "sentence": "2.5 % more", "problems": ["a launch failed"]}
    row = read_row(write_verdict(tmp_path / "run", verdict, **keys))
    assert (row.verdict, row.code, row.first) == (verdict, code, told)
    assert overall([row]) == verdict


@pytest.mark.parametrize(
    ("verdicts", "word", "code"),
    [
        ([], "NOT_JUDGED", 2),
        ([None, None], None, 0),
        ([None, "REPRODUCIBLE"], "REPRODUCIBLE", 0),
        (["REPRODUCIBLE", "NOT_JUDGED", None], "NOT_JUDGED", 2),
        (["NOT_JUDGED", "DIVERGED", "REPRODUCIBLE"], "DIVERGED", 1),
    ],
)
def test_the_worst_run_stands_for_all(verdicts: list[str | None], word: str | None, code: int) -> None:
    rows = [ended(verdict) for verdict in verdicts]
    assert (overall(rows), worst(rows)) == (word, code)
    document = summary_document(rows, "c")
    assert (document["verdict"], document["exit_code"]) == (word, code)


def test_the_documents_say_the_same(tmp_path: Path) -> None:
    rows = [ROW, ended("DIVERGED", overrides=("nproc=3", "seed=1"), first="a|b\n*c*")]
    write_summary(SummaryFiles(tmp_path), rows, "torchrun -m ddp_repro.check -m seed=0,1")
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["verdict"] == "DIVERGED"
    assert document["exit_code"] == 1
    assert document["command"] == "torchrun -m ddp_repro.check -m seed=0,1"
    assert document["runs"][1] == {
        "overrides": ["nproc=3", "seed=1"],
        "verdict": "DIVERGED",
        "exit_code": 1,
        "first": "a|b\n*c*",
        "folder": "runs/0/0",
    }
    table = (tmp_path / "summary.md").read_text()
    assert table == as_markdown(rows)
    assert table.splitlines()[0] == "2 runs: 1 REPRODUCIBLE, 1 DIVERGED."
    assert table.splitlines()[-1] == r"| seed=1 | DIVERGED | a\|b\\n\*c\* | runs/0/0 |"  # what all have is left out


def test_the_last_line_is_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary([ROW, ended("NOT_JUDGED", first="[red]why[/red]")], None)
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "NOT_JUDGED"
    assert "[red]why[/red]" in told
    print_summary([ended(None)], None)
    assert capsys.readouterr().out.splitlines()[-1] == "1 run: 1 recorded"
