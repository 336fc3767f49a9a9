"""`summary`: several runs in one table."""

import json
from pathlib import Path

import pytest

from tests.command import run
from tests.unit.test_report_summary import write_verdict


def test_the_worst_run_decides(tmp_path: Path) -> None:
    write_verdict(tmp_path / "a", "REPRODUCIBLE")
    write_verdict(tmp_path / "b c", "DIVERGED")
    done = run("summary", "a", "b c", "nowhere", cwd=tmp_path)
    assert (done.code, done.last_line) == (1, "DIVERGED")
    document = json.loads((tmp_path / "summary.json").read_text())
    assert [entry["folder"] for entry in document["runs"]] == ["a", "b c", "nowhere"]
    assert "| NOT_JUDGED | nowhere/verdict.json is missing |" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize(("names", "code"), [(["a"], 0), (["a", "nowhere"], 2)])
def test_a_run_without_a_verdict_is_never_reproducible(tmp_path: Path, names: list[str], code: int) -> None:
    (tmp_path / "runs").mkdir()
    write_verdict(tmp_path / "runs" / "a", "REPRODUCIBLE")
    done = run("summary", *(f"runs/{name}" for name in names), cwd=tmp_path)
    assert done.code == code
    assert (tmp_path / "runs" / "summary.json").is_file()  # in the folder that holds them all
    assert not (tmp_path / "summary.json").exists()


def test_runs_can_be_named(tmp_path: Path) -> None:
    write_verdict(tmp_path / "a", "REPRODUCIBLE")
    done = run("summary", "a", "nowhere", "name=digits, 4 ranks", 'name=x="[y]"', cwd=tmp_path)
    assert done.code == 2, done.stderr
    table = (tmp_path / "summary.md").read_text()
    assert "| digits, 4 ranks | REPRODUCIBLE |" in table
    assert '| x="[y]" | NOT_JUDGED |' in table


def test_the_table_can_be_written_elsewhere(tmp_path: Path) -> None:
    write_verdict(tmp_path / "a", "REPRODUCIBLE")
    (tmp_path / "out").mkdir()
    assert run("summary", "runs=[a]", "into=out", cwd=tmp_path).code == 0
    assert (tmp_path / "out" / "summary.md").is_file()


@pytest.mark.parametrize("words", [[], ["a", "into=nowhere"], ["nope=1"], ["-m", "runs=a,b"], ["a", "b", "name=x"]])
def test_a_mistake_gets_a_short_answer(tmp_path: Path, words: list[str]) -> None:
    run("summary", *words, cwd=tmp_path).assert_short_refusal()
