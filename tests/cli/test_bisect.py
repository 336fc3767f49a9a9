"""Planted culprits of every kind that a CPU can show are found, alone and together, and none where there is none."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.command import Done, run

SCRIPTS = Path(__file__).parents[1] / "scripts"
SLOW = "bisect.skip=[hash_seed,seeds,distributed]"  # each starts interpreters anew, or other worlds
ONE_WORLD = ("nproc=2", "workload=script", "workload.path=suspects.py", "output.dir=out", "launches=2")

FLAGS: dict[str, tuple[str, str]] = {
    "compile": ("--compile", "bisect.factors.compile.drop=--compile"),
    "precision": ("--bf16", "bisect.factors.precision.drop=--bf16"),
    "optimizer": ("--optimizer fused", 'bisect.factors.optimizer.args="--optimizer plain"'),
    "accumulation": ("--accumulate 2", 'bisect.factors.accumulation.args="--accumulate 1"'),
    "persistent_workers": ("--workers 2 --persistent", "bisect.factors.persistent_workers.drop=--persistent"),
    "workers": ("--workers 2", 'bisect.factors.workers.args="--workers 0"'),
    "hook": ("--hook", "bisect.factors.hook.drop=--hook"),
    "bucket": ("--bucket 1", 'bisect.factors.bucket.drop="--bucket 1"'),
    "threads": ("--threads 2", 'bisect.factors.threads.args="--threads 1"'),
}
"""Of each culprit among a script's arguments: the arguments, and what names it as a suspect."""

KEYS: dict[str, tuple[str, ...]] = {
    "algorithms": (SLOW,),
    "tf32": ("determinism.float32_matmul_precision=high", SLOW),
    "threads": ("threads=2", SLOW),
    "env.FAST": ("launcher.env.FAST=1", SLOW),
    "hash_seed": ("bisect.skip=[seeds,distributed]",),
    "seeds": ("bisect.skip=[hash_seed,distributed]",),
    "distributed": ("bisect.skip=[hash_seed,seeds]",),
}
"""Of each culprit among keys and variables: what switches it on."""


def bisect(
    folder: Path,
    planted: str,
    *overrides: str,
    arguments: str = "",
    timeout_s: float = 280,
    extra: dict[str, str] | None = None,
) -> Done:
    shutil.copy(SCRIPTS / "suspects.py", folder)
    words = f'workload.args="{arguments} --planted {planted}"' if planted else f'workload.args="{arguments}"'
    return run("bisect", *ONE_WORLD, words, *overrides, cwd=folder, timeout_s=timeout_s, extra=extra)


def culprits(done: Done) -> list[str]:
    assert done.verdict is not None, done.stdout + done.stderr
    return [one["name"] for one in done.verdict["culprits"]]


def assert_found(done: Done, *names: str) -> dict[str, Any]:
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert culprits(done) == list(names)
    assert done.verdict["confidence"] >= 0.95
    assert done.verdict["findings"][0]["phase"] == "grad_step"
    return done.verdict


@pytest.mark.worlds
def test_a_culprit_among_a_script_s_arguments_is_found_and_told(tmp_path: Path) -> None:
    arguments, factor = FLAGS["workers"]
    more, other = FLAGS["hook"]
    done = bisect(tmp_path, "workers", factor, other, SLOW, arguments=f"{arguments} {more}")
    verdict = assert_found(done, "workers")
    assert (verdict["schema"], verdict["kind"]) == ("bisect/1", "bisect")
    assert verdict["culprits"][0]["overrides"] == ['workload.args="--workers 2 --hook --planted workers --workers 0"']
    assert verdict["left_out"]["compile"].startswith("the script's own")
    assert "bisect.skip names it" in verdict["left_out"]["distributed"]
    assert verdict["outcomes"][0] == {
        "number": 0,
        "off": [],
        "outcome": "diverges",
        "launches": 3,
        "shown": 2,
        "why": "",
        "folder": "out/outcome-0",
    }
    assert "--workers 0" in verdict["reproduce"]["equal"]
    assert "torchrun -m ddp_repro.check nproc=2" in verdict["reproduce"]["diverging"]
    assert "bisect" not in verdict["reproduce"]["equal"]
    assert "it showed in at least" in verdict["sentence"]
    for told in ("change     workers:", "diverges   torchrun", "equal      torchrun", "left out"):
        assert told in done.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What must be off" in page
    assert "--workers 0" in page
    again = run("report", "out", cwd=tmp_path)
    assert again.code == 0
    assert (tmp_path / "out" / "report.html").read_text() == page


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize("name", list(FLAGS))
def test_each_culprit_among_arguments_is_found(name: str, tmp_path: Path) -> None:
    others = {"compile", "hook", "workers"} - {name}
    if name == "persistent_workers":  # without workers there are none that persist, and either would do
        others -= {"workers"}
    given = [FLAGS[name], *(FLAGS[other] for other in sorted(others))]
    done = bisect(tmp_path, name, SLOW, *(factor for _, factor in given), arguments=" ".join(flag for flag, _ in given))
    assert_found(done, name)


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize("name", list(KEYS))
def test_each_culprit_among_keys_and_variables_is_found(name: str, tmp_path: Path) -> None:
    arguments, factor = FLAGS["hook"]
    assert_found(bisect(tmp_path, name, factor, *KEYS[name], arguments=arguments), name)


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.parametrize("strategy", ["order", "ddmin"])
def test_two_that_act_together_are_both_named(strategy: str, tmp_path: Path) -> None:
    given = [FLAGS[name] for name in ("hook", "bucket", "compile")]
    arguments = " ".join(flag for flag, _ in given)
    factors = [factor for _, factor in given]
    done = bisect(tmp_path, "hook bucket", SLOW, f"bisect.strategy={strategy}", *factors, arguments=arguments)
    verdict = assert_found(done, "hook")
    assert verdict["culprits"][0]["together"] == ["bucket"]
    assert any("only together with bucket" in note for note in verdict["notes"])


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rate", "first", "least"), [("0.333", 30, 8), ("0.167", 80, 17)])
def test_one_that_shows_in_some_launches_only_is_found(rate: str, first: int, least: int, tmp_path: Path) -> None:
    given = [FLAGS[name] for name in ("hook", "compile")]
    done = bisect(
        tmp_path,
        "hook",
        SLOW,
        "launches=3",
        f"bisect.first={first}",
        "bisect.confidence=0.99",
        "bisect.most=2000",
        *(factor for _, factor in given),
        arguments=f"--rate {rate} " + " ".join(flag for flag, _ in given),
        timeout_s=880,
    )
    verdict = assert_found(done, "hook")
    assert verdict["confidence"] >= 0.99
    equal = [one for one in verdict["outcomes"] if one["off"] == ["hook"]]
    assert equal[0]["launches"] >= least
    assert (equal[0]["outcome"], equal[0]["shown"]) == ("reproducible", 0)


@pytest.mark.full
@pytest.mark.worlds
def test_a_variable_that_the_script_inherits_can_be_named(tmp_path: Path) -> None:
    given = FLAGS["hook"]
    named = 'bisect.factors.fast.overrides=["launcher.env.FAST=0"]'
    done = bisect(tmp_path, "env.FAST", SLOW, given[1], named, arguments=given[0], extra={"FAST": "1"})
    verdict = assert_found(done, "fast")
    assert verdict["culprits"][0]["overrides"] == ["launcher.env.FAST=0"]
    assert "launcher.env.FAST=0" in verdict["reproduce"]["equal"]


@pytest.mark.full
@pytest.mark.worlds
def test_none_is_found_where_launches_are_equal_or_no_suspect_is_the_reason(tmp_path: Path) -> None:
    arguments, factor = FLAGS["hook"]
    (tmp_path / "equal").mkdir()
    done = bisect(tmp_path / "equal", "", factor, SLOW, "bisect.first=2", arguments=arguments)
    assert (done.code, done.last_line, culprits(done)) == (0, "REPRODUCIBLE", [])
    assert "nothing to bisect" in done.stdout
    (tmp_path / "other").mkdir()
    done = bisect(tmp_path / "other", "workers", factor, SLOW, arguments=f"{arguments} --workers 1")
    assert (done.code, done.last_line, culprits(done)) == (2, "NOT_JUDGED", [])
    assert done.verdict is not None
    assert "none of them is the reason" in done.verdict["sentence"]


@pytest.mark.full
@pytest.mark.worlds
def test_a_suspect_that_the_script_sets_itself_is_left_out_and_named(tmp_path: Path) -> None:
    arguments, factor = FLAGS["hook"]
    done = bisect(tmp_path, "hook", factor, SLOW, arguments=f"{arguments} --careless")
    assert_found(done, "hook")
    assert done.verdict is not None
    assert "the script sets it itself" in done.verdict["left_out"]["algorithms"]
    numbers = [one["number"] for one in done.verdict["outcomes"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.full
@pytest.mark.worlds
def test_a_launch_that_fails_is_told_and_ends_the_search(tmp_path: Path) -> None:
    done = bisect(tmp_path, "hook", "bisect.factors.hook.args=--hok", SLOW, arguments="--hook")
    assert (done.code, done.last_line) == (2, "NOT_JUDGED")
    assert "with all suspects off it could not be judged" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.worlds
@pytest.mark.timeout(600)
def test_a_built_in_workload_and_a_real_race(tmp_path: Path) -> None:
    tiny = ("workload=text", "workload.size=tiny", "train.max_steps=3", "train.evaluate=false", "determinism=prod")
    done = run("bisect", "nproc=2", *tiny, "output.dir=out", "bisect.first=20", cwd=tmp_path, timeout_s=590)
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    assert culprits(done) == ["algorithms"]
    assert done.verdict is not None
    assert done.verdict["findings"][0]["name"] == "blocks.0.attention.table"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["launches=1"], "launches=1 is not possible"),
        (["bisect.confidence=1"], "bisect.confidence=1"),
        (["bisect.first=1"], "bisect.first=1"),
        (["bisect.most=4"], "bisect.most=4"),
        (["bisect.skip=nobody"], "nobody"),
        (["bisect.skip=env.NOWHERE"], "bisect.skip names env.NOWHERE"),
        (["bisect.factors.mine.arg=x"], "Its keys are"),
        (["bisect.factors.mine=3"], "is no suspect"),
        (["bisect.factors.mine.overrides=a=1"], "error: bisect.factors.mine.overrides=a=1 cannot be read"),
        (['bisect.factors.mine.cost="much"'], "names nothing that switches it off"),
        (["capture=off"], "capture=off"),
        ([], "there is no suspect to switch off"),
        (['bisect.factors.mine.overrides=["nprox=1"]'], "with mine off"),
    ],
)
def test_a_mistake_is_told_in_short(overrides: list[str], told: str, tmp_path: Path) -> None:
    skip = [] if any("skip" in one for one in overrides) else ["bisect.skip=[distributed]"]
    done = run("bisect", *overrides, *skip, cwd=tmp_path)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("runs/*/outcome-*"))


def test_help_and_cfg(tmp_path: Path) -> None:
    done = run("bisect", "--help", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert "Usage: python -m ddp_repro.bisect" in done.stdout
    assert "hash_seed:" in run("bisect", "--cfg=job", cwd=tmp_path).stdout
