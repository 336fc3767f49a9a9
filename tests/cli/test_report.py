"""`report.html` is written beside every verdict, made again by `report`, and never changes what a command ends with."""

import json
import os
from pathlib import Path

import pytest

from tests.command import TINY, Done, run

pytestmark = pytest.mark.worlds

TWO = (*TINY, "nproc=2")


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("checked")
    return folder, run("check", *TWO, "output.dir=a run", cwd=folder)


def test_check_writes_the_page_and_names_it(checked: tuple[Path, Done]) -> None:
    folder, done = checked
    assert done.code == 0, done.stdout + done.stderr
    page = (folder / "a run" / "report.html").read_text()
    assert done.verdict is not None
    assert f"{done.verdict['observations']:,} observations" in page
    assert "a run/verdict.json and report.html, traces in launch-<i> beside it" in " ".join(done.stdout.split())


def test_the_page_is_made_again_from_the_files(checked: tuple[Path, Done]) -> None:
    folder, _ = checked
    page = folder / "a run" / "report.html"
    before = page.read_text()
    for words in (["a run"], ['run="a run"']):
        page.unlink()
        again = run("report", *words, cwd=folder)
        assert (again.code, again.stdout) == (0, "wrote a run/report.html\n"), again.stderr
        assert page.read_text() == before


def test_report_without_a_display_says_so(checked: tuple[Path, Done]) -> None:
    folder, _ = checked
    hidden = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = run("report", "a run", "report.open=true", cwd=folder, extra=hidden)
    assert done.code == 0
    assert "there is no display here" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no run was named"),
        (["nowhere"], "nowhere is not a folder"),
        (["empty"], "holds no verdict.json"),
        (["a run", "report.html=false"], "would leave nothing to do"),
        (["a run", "report.nothing=1"], "nothing"),
    ],
)
def test_mistakes_are_refused_in_short(checked: tuple[Path, Done], words: list[str], told: str) -> None:
    folder, _ = checked
    (folder / "empty").mkdir(exist_ok=True)
    done = run("report", *words, cwd=folder)
    done.assert_short_refusal()
    assert told in done.stderr


def test_compare_writes_one_too_and_leaves_it_out_where_asked(checked: tuple[Path, Done]) -> None:
    folder, _ = checked
    run("record", *TWO, "output.dir=other", cwd=folder)
    done = run("compare", 'runs=["a run","other"]', "output.dir=compared", cwd=folder)
    assert (done.code, (folder / "compared" / "report.html").exists()) == (0, True)
    done = run("compare", 'runs=["a run","other"]', "output.dir=bare", "report.html=false", cwd=folder)
    assert (done.code, (folder / "bare" / "report.html").exists()) == (0, False)
    assert "report.html" not in done.stdout


def test_a_page_that_cannot_be_written_changes_nothing(checked: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = checked
    blocked = tmp_path / "jinja2"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("class Environment:\n def __init__(self, **_): raise OSError('no room')\n")
    with (blocked / "__init__.py").open("a") as file:
        file.write("PackageLoader = StrictUndefined = lambda *_: None\n")
    extra = {"PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))}
    done = run(
        "compare", f'runs=["{folder}/a run","{folder}/other"]', "output.dir=c", cwd=tmp_path, extra=extra, real=True
    )
    assert done.code == 0, done.stdout + done.stderr
    assert done.last_line == "REPRODUCIBLE"
    assert done.verdict is not None
    assert "no report.html (OSError: no room)" in " ".join(done.stdout.split())
    assert not (tmp_path / "c" / "report.html").exists()


def test_resume_draws_the_stretches(tmp_path: Path) -> None:
    done = run("resume", *TWO, "resume.at=[2]", "output.dir=r", cwd=tmp_path)
    assert done.verdict is not None, done.stdout + done.stderr
    page = tmp_path / "r" / "report.html"
    assert done.code == 0, done.stdout + done.stderr
    assert [one["launch"] for one in done.verdict["stretches"]] == [1, 2]
    assert "the verdict counts" not in page.read_text()
    before = page.read_text()
    data = json.loads(before.partition('id="data">')[2].partition("</script>")[0])
    assert data["letters"] == {}
    assert run("report", "r", cwd=tmp_path).code == 0
    assert page.read_text() == before
