"""Tests that use the fixture ``reproducible``, run by pytest in a folder of their own."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from ddp_repro.calling import check_script, in_hydra
from ddp_repro.errors import Verdict

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
# Where the package is installed its entry point loads the plugin; from a bare checkout it is named.
IS_INSTALLED = any(one.name == "ddp_repro" for one in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = () if IS_INSTALLED else ("-p", "ddp_repro.pytest_plugin")

FAKE = '''
"""Stands for the command: tells its overrides, and ends as EXPECTED says."""
import json, os, sys, time
from pathlib import Path
given = dict(word.split("=", 1) for word in sys.argv[1:])
ends = json.loads(os.environ["EXPECTED"])
verdict = ends.pop("verdict")
if "sleeps" in ends:
    Path(ends["sleeps"]).write_text(str(os.getpid()))
    time.sleep(120)
if "document" not in ends:
    run = Path(given["output.dir"].strip('"'))
    run.mkdir()
    golden = {"state": ends.get("golden")} if "golden.path" in given else None
    told = {"verdict": verdict, "golden": golden, "given": given}
    (run / "verdict.json").write_text(json.dumps(told))
    print("first      step 3, rank 1, grad_local")
else:
    print("error: nproc=0 is not possible.", file=sys.stderr)
print(ends.get("last", verdict))
sys.exit(ends.get("code", {"REPRODUCIBLE": 0, "DIVERGED": 1}.get(verdict, 2)))
'''


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a test of each kind, in which a stand-in answers for the command."""
    package = pytester.mkdir("stand_in") / "ddp_repro"
    package.mkdir()
    for file in ("calling.py", "errors.py", "overrides.py", "continuous_integration.py", "pytest_plugin.py"):
        (package / file).write_text((ROOT / "ddp_repro" / file).read_text())
    (package / "__init__.py").touch()
    (package / "check.py").write_text(FAKE)
    pytester.makepyfile(
        test_it="""
        def test_plain():
            pass

        def test_training(reproducible):
            told = reproducible("train.py", nproc=2, args="--lr 1e-3 --name 'a b'", overrides=["train.max_steps=3"])
            assert told.document["given"]["nproc"] == "2"
            assert told.document["given"]["workload.args"] == '"--lr 1e-3 --name \\'a b\\'"'
            assert told.document["given"]["train.max_steps"] == "3"

        def test_golden(reproducible):
            reproducible.golden("train.py", path="goldens/it", nproc=2)
        """
    )
    pytester.path.joinpath("train.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.delenv("CI", raising=False)
    return pytester


def outcomes(
    inner: pytest.Pytester, *arguments: str, expected: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> pytest.RunResult:
    monkeypatch.setenv("EXPECTED", json.dumps(expected))
    return inner.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *arguments)


def test_it_passes_where_the_training_is_reproducible(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcomes(inner, expected={"verdict": "REPRODUCIBLE", "golden": "matched"}, monkeypatch=monkeypatch)
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["goldens: 1 matched"])


OTHERWISE: list[dict[str, Any]] = [
    {"verdict": "DIVERGED", "golden": "changed"},
    {"verdict": "NOT_JUDGED", "golden": "stale"},
    {"verdict": "NOT_JUDGED", "golden": "created"},
    # No silent pass: code, last line and document must say the same.
    {"verdict": "REPRODUCIBLE", "golden": "matched", "code": 1},
    {"verdict": "REPRODUCIBLE", "golden": "matched", "code": 139},
    {"verdict": "REPRODUCIBLE", "golden": "matched", "last": "NOT_JUDGED"},
    {"verdict": "REPRODUCIBLE", "golden": "matched", "last": "bye"},
    {"verdict": "DIVERGED", "code": 0},
]


def test_it_fails_with_the_report_otherwise(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    inner.makepyfile(
        test_it=f"""
        import json
        import pytest

        CASES = {OTHERWISE!r}

        @pytest.mark.parametrize("at", range(len(CASES)))
        @pytest.mark.parametrize("is_golden", [False, True])
        def test_it(reproducible, monkeypatch, at, is_golden):
            monkeypatch.setenv("EXPECTED", json.dumps(CASES[at]))
            call = reproducible.golden if is_golden else reproducible
            call("train.py", nproc=2)
        """
    )
    done = outcomes(inner, expected={}, monkeypatch=monkeypatch)
    done.assert_outcomes(failed=2 * len(OTHERWISE))
    text = done.stdout.str()
    assert text.count("first      step 3, rank 1, grad_local") == 2 * len(OTHERWISE)
    assert text.count("\ntrain.py: ") == 2 * len(OTHERWISE)
    assert "pytest_plugin.py" not in text, "no traceback of ours"
    assert text.count("--golden-accept") == 2, "told of what changed and of what is stale"


def test_a_refusal_fails_with_its_reason(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcomes(inner, expected={"verdict": "NOT_JUDGED", "document": None}, monkeypatch=monkeypatch)
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["error: nproc=0 is not possible.", "goldens: 1 unjudged"])


def test_its_tests_are_marked(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"verdict": "REPRODUCIBLE", "golden": "matched"}
    chosen = outcomes(inner, "-m", "not reproducible", "--strict-markers", expected=expected, monkeypatch=monkeypatch)
    chosen.assert_outcomes(passed=1, deselected=2)


def test_goldens_are_accepted_by_an_option_and_never_in_ci(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {"verdict": "NOT_JUDGED", "golden": "accepted"}
    done = outcomes(inner, "--golden-accept", "-k", "golden", expected=expected, monkeypatch=monkeypatch)
    done.stdout.fnmatch_lines(["goldens: 1 accepted"])
    (verdict,) = inner.path.rglob("check-0/verdict.json")
    given = json.loads(verdict.read_text())["given"]
    assert given["golden.accept"] == "true"
    assert Path(given["golden.path"].strip('"')) == inner.path / "goldens" / "it"

    monkeypatch.setenv("CI", "true")
    refused = outcomes(inner, "--golden-accept", expected=expected, monkeypatch=monkeypatch)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "refused in CI" in refused.stderr.str()


def test_tests_in_several_processes_have_folders_of_their_own(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    expected = {"verdict": "REPRODUCIBLE", "golden": "matched"}
    inner.makepyfile(
        test_many="""
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_golden(reproducible, number):
            reproducible.golden("train.py")
            reproducible("train.py")
        """
    )
    done = outcomes(inner, "-n", "2", "test_many.py", expected=expected, monkeypatch=monkeypatch)
    done.assert_outcomes(passed=6)
    done.stdout.fnmatch_lines(["goldens: 6 matched"])
    documents = [json.loads(file.read_text()) for file in inner.path.rglob("check-*/verdict.json")]
    assert len({told["given"]["output.dir"] for told in documents}) == 12
    places = {told["given"].get("golden.path") for told in documents} - {None}
    assert len(places) == 6, "each test has a golden of its own"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"), (0.5, "0.5"), (True, "true"), (None, "null"), ("digits", "digits"), ("a/b.py", "a/b.py"),
        ("a b", '"a b"'), ("1", '"1"'), ("true", '"true"'), ("é", '"é"'), (["*.mean", "a"], '["*.mean",a]'), ("", '""'),
        ('say "hi"', r'"say \"hi\""'),
    ],
)  # fmt: skip
def test_a_value_is_written_as_hydra_reads_it(value: object, text: str) -> None:
    assert in_hydra(value) == text
    read = OverridesParser.create().parse_override(f"key={text}").value()
    told = [str(part) for part in read] if isinstance(read, list) else read
    assert str(told).strip('"').replace('\\"', '"') == str(value) or told == value


def test_the_plugin_needs_nothing_but_the_base_package() -> None:
    heavy = ("torch", "hydra", "numpy", "pyarrow")
    code = f"import sys, ddp_repro.pytest_plugin; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_call_that_is_interrupted_ends_the_check(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    told = inner.path / "pid"
    monkeypatch.setenv("EXPECTED", json.dumps({"verdict": "DIVERGED", "sleeps": str(told)}))
    code = "from ddp_repro.calling import check_script; check_script('train.py', folder='run')"
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=inner.path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    caller.send_signal(signal.SIGINT)
    assert caller.wait(timeout=60) != 0
    assert not Path(f"/proc/{told.read_text()}").exists()


SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
torch.manual_seed(10 + dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(5, 4)).square().mean() CHANGE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.worlds
@pytest.mark.full
def test_a_real_training_in_a_real_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(
        test_it="""
        def test_training(reproducible):
            reproducible("train.py", nproc=2)

        def test_golden(reproducible):
            reproducible.golden("train.py", path="goldens/train", nproc=2)
        """
    )

    def tests(change: str, *arguments: str) -> pytest.RunResult:
        pytester.path.joinpath("train.py").write_text(SCRIPT.replace("CHANGE", change))
        return pytester.runpytest_subprocess(*PLUGIN, *arguments)

    done = tests("", "-n", "2")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["train.py: NOT_JUDGED", "goldens: 1 created"])
    tests("").assert_outcomes(passed=2)
    changed = tests("* (1 + (step == 2))", "-k", "golden")
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["first      launch 0, step 2, ranks 0 and 1, loss*", "goldens: 1 changed"])
    assert "Traceback" not in changed.stdout.str()
    tests("* (1 + (step == 2))", "-k", "golden", "--golden-accept").assert_outcomes(failed=1)
    tests("* (1 + (step == 2))", "-k", "golden").assert_outcomes(passed=1)
    diverged = tests("+ torch.rand(()) * float(torch.seed() % 2 + 1)", "-k", "training")
    diverged.assert_outcomes(failed=1)
    diverged.stdout.fnmatch_lines(["train.py: DIVERGED"])


@pytest.mark.worlds
@pytest.mark.full
def test_a_check_is_called_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT)]))
    done = check_script(folder=tmp_path / "run", workload="digits", nproc=3, **{"workload.size": "tiny"})
    assert done.verdict is Verdict.REPRODUCIBLE, done.report
    assert (done.folder / "report.html").exists()
    refused = check_script(tmp_path / "nothing.py", folder=tmp_path / "none", nproc=2)
    assert (refused.verdict, refused.document) == (Verdict.NOT_JUDGED, None)
    assert "nothing.py" in refused.report
