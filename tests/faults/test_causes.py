"""Every cause that the product names is proven by a planted fault in a run; those of causes.yaml are run here."""

import ast
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ddp_repro.judge.causes import CAUSES
from tests.command import Done, run
from tests.faults.bank_run import EXIT_CODES, RANKS, RESUME_ARGS, entries

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
ROWS: Final[list[dict[str, Any]]] = yaml.safe_load((HERE / "causes" / "causes.yaml").read_text())
CLEAN: Final = "none"

# Planted in runs that tests of their own make: the test that expects the cause.
ELSEWHERE: Final = {
    "forward-operator": "tests/faults/test_operators.py::test_a_planted_operator_is_named",
    "begun-anew": "tests/cli/test_resume_input.py::test_a_script_that_begins_anew_did_not_go_on",
}
# What no run comes to, with the test that shows what the judge would say. Launches of other worlds are refused by their
# identities, and one of which a rank left no trace is not judged; the judge compares launches all the same, whoever
# puts them together, and a rank that only one of them has is a difference of its own kind, never an exception.
UNREACHED: Final = {
    "missing-rank": "tests/unit/test_judge_diagnosis.py::test_a_missing_rank_is_named",
}


def checked(row: dict[str, Any], faults: list[str], folder: Path) -> Done:
    """Run a row's script with these faults as a person would."""
    command = row.get("command", "check")
    script = f"workload.path={HERE / 'causes' / row['script']}.py"
    overrides = [*row.get("overrides", ()), f"""workload.args='--faults "{",".join(faults)}"'""", "output.dir=run"]
    if command == "resume":
        overrides += [f'resume.{key}="{told}"' for key, told in RESUME_ARGS.items()]
    elif len(faults) > 1:
        overrides.append(f"launches={len(faults)}")
    return run(command, "workload=script", script, f"nproc={RANKS}", *overrides, cwd=folder)


def may_mount() -> bool:
    """Return whether a process here may have mounts of its own."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def told(done: Done) -> str:
    """Return what was said, in a few lines: for a test that fails."""
    keys = ("severity", "witness", "cause", "launches", "step", "ranks", "phase", "name")
    found = done.verdict["findings"] if done.verdict is not None else []
    return "\n".join([done.stdout, done.stderr, *(str({key: one[key] for key in keys}) for one in found)])


SCRIPTS: Final = {row["script"]: row for row in ROWS}
NAMES: Final = [f"{row['script']}-{row['faults'][-1]}".replace(" ", "-") for row in ROWS]


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_planted_fault_is_caught_and_placed(row: dict[str, Any], tmp_path: Path) -> None:
    done = checked(row, row["faults"], tmp_path)
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.last_line, done.code) == (row["verdict"], EXIT_CODES[row["verdict"]]), told(done)
    for expected in row["findings"]:
        place = {key: value for key, value in expected.items() if key != "mounts"}
        found = [{key: one[key] for key in place} for one in done.verdict["findings"]]
        assert place in found or ("mounts" in expected and not may_mount()), told(done)
    clean = [number for number, fault in enumerate(row["faults"]) if fault == CLEAN]
    if clean:
        assert done.verdict["classes"][0] == clean, told(done)
    assert not any(set(one["launches"]) <= set(clean) for one in done.verdict["findings"]), told(done)


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize("row", SCRIPTS.values(), ids=SCRIPTS)
def test_its_clean_twin_passes(row: dict[str, Any], tmp_path: Path) -> None:
    done = checked(row, [CLEAN], tmp_path)
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), told(done)
    assert done.verdict["findings"] == [], told(done)


def test_every_cause_is_proven_by_a_planted_fault() -> None:
    rows: list[dict[str, Any]] = yaml.safe_load((HERE / "expected.yaml").read_text())
    expected = {row["finding"]["cause"] for row in rows if "cause" in row["finding"]}
    expected |= {one["expect"]["cause"] for one in entries() if "cause" in one["expect"]}
    expected |= {finding["cause"] for row in ROWS for finding in row["findings"]}
    assert expected - set(CAUSES) == set(), "expected, and never told"
    assert set(CAUSES) - expected == set(ELSEWHERE) | set(UNREACHED)


@pytest.mark.parametrize(("cause", "node"), [*ELSEWHERE.items(), *UNREACHED.items()])
def test_what_is_proven_elsewhere_is_expected_there(cause: str, node: str) -> None:
    file, name = node.split("::")
    module = ast.parse((ROOT / file).read_text())
    (function,) = [one for one in module.body if isinstance(one, ast.FunctionDef) and one.name == name]
    read = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
    tables = [one for one in module.body if isinstance(one, ast.Assign) and _names(one) & read]
    texts = {one.value for part in [function, *tables] for one in ast.walk(part) if isinstance(one, ast.Constant)}
    assert cause in texts, f"{node} does not expect {cause}"


def _names(assignment: ast.Assign) -> set[str]:
    return {target.id for target in assignment.targets if isinstance(target, ast.Name)}
