"""Everything that is installed is pinned, and comes from pip's ordinary index."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_every_line_is_an_exact_pin() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)] == []
    assert "torch==2.13.0" in lines


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["project"]["optional-dependencies"].values()
    required = [*project["project"]["dependencies"], *(requirement for group in groups for requirement in group)]
    pinned = {name_of(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}

    assert required
    assert [requirement for requirement in required if name_of(requirement) not in pinned] == []


def test_no_other_index_is_named() -> None:
    files = [ROOT / "constraints.txt", ROOT / "pyproject.toml", ROOT / ".ci" / "run", *(ROOT / "launch").iterdir()]
    assert [
        file.name for file in files if re.search(r"index-url|find-links|whl/|--index|-f http", file.read_text())
    ] == []
