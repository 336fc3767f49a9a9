import sys
from pathlib import Path

import pytest

from ddp_repro.errors import ReproError
from ddp_repro.workload.definition import Workload
from ddp_repro.workload.factory import load_workload

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
OWN = """
from ddp_repro import Workload
def wrong(): return 3
def needs(width): return width
def late(): return {}["missing"]
constant = 5
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_training.py").write_text(OWN)
    (tmp_path / "own_missing.py").write_text("import no_such_distribution\n")
    (tmp_path / "own_broken.py").write_text("def build(:\n")
    for name in ("own_training", "own_missing", "own_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_built_in_one() -> None:
    workload = load_workload("ddp_repro.workload.digits.build", {"size": "tiny", "batch_size": 7, "lr": None})
    assert isinstance(workload, Workload)
    assert workload.batch_size == 7


def test_the_documented_example_from_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "curve", raising=False)
    workload = load_workload("curve.build", {"points": 50})
    assert len(workload.train_data) == 50  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "options", "said", "hint"),
    [
        ("build", {}, "package.module.function", "import"),
        ("own_training.", {}, "package.module.function", "import"),
        ("own training.build", {}, "package.module.function", "import"),
        ("no_such_module.build", {}, "no module no_such_module", "folder"),
        ("ddp_repro.no_such_part.build", {}, "no module ddp_repro.no_such_part", "folder"),
        ("own_missing.build", {}, "own_missing imports no_such_distribution", "install no_such_distribution"),
        ("own_training.build", {}, "own_training has no build", "wrong, needs, late"),
        ("own_training.constant", {}, "is not a function", "function"),
        ("own_training.wrong", {}, "returned int", "ddp_repro.Workload"),
        ("own_training.needs", {"height": 3}, "does not take the options height", "own_training.needs(width)"),
        ("own_training.needs", {}, "(none)", "(width)"),
    ],
)
def test_what_is_wrong_has_a_next_step(
    own_folder: Path, target: str, options: dict[str, object], said: str, hint: str
) -> None:
    assert own_folder.is_dir()
    with pytest.raises(ReproError) as raised:
        load_workload(target, options)
    assert said in str(raised.value)
    assert hint in raised.value.hint


def test_a_bug_in_the_factory_keeps_its_traceback(own_folder: Path) -> None:
    assert own_folder.is_dir()
    with pytest.raises(KeyError):
        load_workload("own_training.late", {})
    with pytest.raises(SyntaxError):
        load_workload("own_broken.build", {})
