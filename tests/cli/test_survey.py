"""What survey lists, of a workload and of scripts, and how it ends."""

import json
import shutil
from pathlib import Path

import pytest

from tests.command import Done, run

SCRIPTS = Path(__file__).parents[1] / "scripts"
TINY = ("nproc=2", "workload.size=tiny", "train.evaluate=false", "output.dir=out")


def survey(folder: Path, *overrides: str, arguments: str = "") -> Done:
    shutil.copy(SCRIPTS / "offenders.py", folder)
    script = ("nproc=2", "workload=script", "workload.path=offenders.py", f'workload.args="{arguments}"')
    return run("survey", *script, "output.dir=out", *overrides, cwd=folder)


def line(text: str) -> str:
    lines = (SCRIPTS / "offenders.py").read_text().splitlines()
    return f"offenders.py:{next(at for at, one in enumerate(lines, start=1) if text in one)}"


@pytest.mark.worlds
def test_a_script_s_offenders_are_listed_and_can_be_accepted(tmp_path: Path) -> None:
    done = survey(tmp_path)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert done.verdict is not None
    refused, unknown = done.verdict["offenders"]
    assert (done.verdict["schema"], done.verdict["kind"]) == ("survey/1", "survey")
    identity = json.loads((tmp_path / "out" / "identity.json").read_text())
    assert done.verdict["identity"]["digest"] == identity["digest"]
    assert (refused["operator"], refused["kind"], refused["source"]) == (
        "aten::put_", "no deterministic form", line("put_("),
    )  # fmt: skip
    assert "does not have a deterministic implementation" in refused["says"]
    assert (refused["differed"], refused["module"], refused["part"]) == (0, "Net", "forward")
    assert (unknown["operator"], unknown["source"]) == ("planted::jitter", line("jitter(y)"))
    assert unknown["kind"] == "not known to use_deterministic_algorithms, seen to differ"
    assert unknown["differed"] == unknown["compared"] == 12
    assert "torch says" in done.stdout
    assert not any("compile" in note for note in done.verdict["notes"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "planted::jitter" in page
    assert run("report", "out", cwd=tmp_path).code == 0
    assert (tmp_path / "out" / "report.html").read_text() == page
    accept = f'survey.accept=["aten::put_","{unknown["accept"]}"]'
    done = survey(tmp_path, accept, "output.overwrite=true")
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    assert "accepted" in done.stdout


@pytest.mark.worlds
@pytest.mark.full
def test_the_race_of_the_text_workload_is_seen_at_its_line(tmp_path: Path) -> None:
    done = run("survey", *TINY, "workload=text", cwd=tmp_path)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert done.verdict is not None
    (one,) = done.verdict["offenders"]
    assert one["operator"] == "aten::index_put"
    assert one["source"].startswith("ddp_repro/workload/text.py:")
    number = int(one["source"].rpartition(":")[2])
    text = (Path(__file__).parents[2] / "ddp_repro" / "workload" / "text.py").read_text().splitlines()
    assert "self.table[index]" in text[number - 1]
    assert (one["kind"], one["part"]) == ("has a deterministic form, not in use, seen to differ", "backward")
    assert one["differed"] > 0
    assert "will act deterministically" in one["says"]


@pytest.mark.worlds
@pytest.mark.full
def test_without_offenders_it_ends_well(tmp_path: Path) -> None:
    done = run("survey", *TINY, "train.max_steps=2", cwd=tmp_path)
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    done = survey(tmp_path, "output.overwrite=true", arguments="--clean")
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    assert "none of" in done.stdout


@pytest.mark.worlds
@pytest.mark.full
def test_a_launch_that_fails_is_not_judged(tmp_path: Path) -> None:
    done = survey(tmp_path, "train.max_steps=null", arguments="--eager-fail")
    assert (done.code, done.last_line) == (2, "NOT_JUDGED")
    assert "too early" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["capture=step"], "does not look at operators"),
        (["survey.again=0"], "survey.again=0"),
        (["launches=2"], "launches"),
        (["survey.accept=[{a:1}]"], "accept[0]: Cannot convert 'dict' to string"),
        (["capture.steps=[100,105]"], "Add train.max_steps=106"),
    ],
)
def test_a_mistake_is_told_in_short(overrides: list[str], told: str, tmp_path: Path) -> None:
    done = run("survey", *overrides, cwd=tmp_path)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("runs/*/launch-*"))


def test_help(tmp_path: Path) -> None:
    done = run("survey", "--help", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert "Usage: python -m ddp_repro.survey" in done.stdout
