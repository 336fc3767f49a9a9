"""The fixture ``reproducible`` for pytest: a test that fails where a training is not reproducible, and tells where.

    def test_training(reproducible):
        reproducible("train.py", nproc=2)
        reproducible.golden("train.py", path="goldens/train", nproc=2)

What it starts is the command itself, in processes of its own; nothing of torch is imported here.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from ddp_repro.calling import Checked, check_script
from ddp_repro.continuous_integration import in_ci
from ddp_repro.errors import Verdict

_FIXTURE: Final = "reproducible"
_OPTION: Final = "--golden-accept"
_PROPERTY: Final = "ddp_repro_golden"
_STATES: Final = ("created", "accepted", "matched", "changed", "stale", "missing", "unreadable", "unjudged")


class Reproducible:
    """Checks trainings for one test; each call has a run folder of its own below the test's ``tmp_path``."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder
        self._made = 0

    def __call__(
        self, script: str | Path | None = None, *, args: str = "", overrides: Sequence[str] = (), **keys: Any
    ) -> Checked:
        """Fail the test unless repeated launches give the same bits, and return what was found.

        ``script`` lies in the current folder, or beside the test; it gets ``args``. ``keys`` are keys of the
        configuration (``nproc=2``, ``launches=3``), ``overrides`` further ones as they are typed.
        """
        checked = self._checked(script, args, overrides, keys)
        if checked.verdict is not Verdict.REPRODUCIBLE:
            pytest.fail(_told(script, checked), pytrace=False)
        return checked

    def golden(
        self,
        script: str | Path | None = None,
        *,
        path: str | Path | None = None,
        args: str = "",
        overrides: Sequence[str] = (),
        **keys: Any,
    ) -> Checked:
        """Fail the test unless one launch is what the golden in the folder ``path`` holds, and return what was found.

        ``path`` begins at the folder of the test; without one it is ``goldens/<file>/<test>`` there. A missing golden
        is made, and the test fails; ``--golden-accept`` writes over one that changed.
        """
        accept = ["golden.accept=true"] if self._request.config.getoption(_OPTION) else []
        keys = {"golden.path": str(self._place(path)), **keys}
        checked = self._checked(script, args, [*overrides, *accept], keys)
        state = checked.golden or "unjudged"
        self._request.node.user_properties.append((_PROPERTY, state))
        if checked.verdict is not Verdict.REPRODUCIBLE:
            pytest.fail(f"{_told(script, checked)}{_how_to_accept(state)}", pytrace=False)
        return checked

    def _checked(self, script: str | Path | None, args: str, overrides: Sequence[str], keys: dict[str, Any]) -> Checked:
        folder = self._folder / f"check-{self._made}"
        self._made += 1
        found = None if script is None else self._found(Path(script))
        return check_script(found, folder=folder, args=args, overrides=overrides, **keys)

    def _found(self, script: Path) -> Path:
        """Return where the script is: in the current folder, or beside the test; where neither, as it was named."""
        beside = self._request.path.parent / script
        return beside if beside.exists() and not script.exists() else script

    def _place(self, path: str | Path | None) -> Path:
        here = self._request.path.parent
        if path is not None:
            return here / path
        name = re.sub(r"[^\w.-]+", "_", self._request.node.name)
        return here / "goldens" / self._request.path.stem / name


def _told(script: str | Path | None, checked: Checked) -> str:
    where = f"\n\n{checked.folder}" if checked.document is not None else ""  # what was refused left no folder
    return f"{script or 'the training'}: {checked.verdict}\n\n{checked.report}{where}"


def _how_to_accept(state: str) -> str:
    if state not in ("changed", "stale", "unreadable"):
        return ""
    return f"\n\nTo accept it as the golden, run this test once with {_OPTION}; look at the change, commit the file."


@pytest.fixture
def reproducible(request: pytest.FixtureRequest, tmp_path: Path) -> Reproducible:
    """Check trainings: ``reproducible("train.py", nproc=2)``, ``reproducible.golden("train.py", nproc=2)``."""
    return Reproducible(request, tmp_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts what changed."""
    group = parser.getgroup("ddp_repro", "reproducible trainings")
    group.addoption(
        _OPTION,
        action="store_true",
        help="write over goldens that changed or are stale (refused in CI); the tests fail once, and pass afterwards",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell the marker; refuse to accept goldens where nobody looks."""
    told = "launches trainings in worlds of ranks (seconds to minutes); set on tests that use the fixture"
    config.addinivalue_line("markers", f"{_FIXTURE}: {told}: -m 'not {_FIXTURE}' leaves them out")
    if config.getoption(_OPTION, default=False) and in_ci(os.environ):
        raise pytest.UsageError(f"{_OPTION} is refused in CI (CI={os.environ['CI']}): a person accepts a golden")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that take the time of worlds, before ``-m`` chooses among them."""
    for item in items:
        if _FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.reproducible)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell in one line what became of goldens; reports bring it here from other processes too."""
    states = Counter(
        str(state)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, state in report.user_properties
        if name == _PROPERTY
    )
    if states:
        told = ", ".join(f"{states[state]} {state}" for state in _STATES if states[state])
        terminalreporter.write_line(f"goldens: {told}")
