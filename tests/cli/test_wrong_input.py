"""A mistake gets one short message that says what to do next, and the code of a run that was not judged."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from ddp_repro.overrides import as_meant, how_to_write
from tests.command import run


@pytest.mark.parametrize(
    ("command", "overrides", "told"),
    [
        ("check", ["nprox=4"], "nprox"),
        ("check", ["nproc=0"], "nproc=0 is not possible"),
        ("check", ["nproc=two"], "nproc"),
        ("check", ["nproc"], "nproc"),
        ("check", ["launches=0"], "launches=0"),
        ("check", ["launches=-3"], "launches=-3"),
        ("check", ["workload=nothing"], "workload/nothing"),
        ("check", ["determinism=careful"], "determinism/careful"),
        ("check", ["determinism.cudnn_benchmark=maybe"], "cudnn_benchmark"),
        ("check", ["determinism.hash_seed=-1"], "hash_seed"),
        ("check", ["train.precision=fp8"], "precision"),
        ("check", ["seed=-1"], "seed=-1"),
        ("check", ["level=statistical"], "level=statistical"),
        ("check", ["launcher.timeout_s=0"], "launcher.timeout_s"),
        ("check", ["output.root=/dev/null/runs"], "/dev/null"),
        ("record", ["launches=2"], "launches"),
        ("record", ["nproc=0"], "nproc=0"),
        ("compare", [], "no run was named"),
        ("compare", ["runs=[nowhere,nothing]"], "nowhere"),
        ("compare", ["runs=[.]"], "holds no launches"),
        ("spread", ["-m", "seeds=1,2,3"], "It takes a list, in brackets"),
        ("check", ["judge.ignore=[[a]]"], "ignore[0]: Cannot convert 'list' to string"),
        ("check", ["+nprox=4"], "nprox is no key of check"),
        ("check", ["+launcher.env2.x=4"], "launcher.env2 is no key"),
        ("check", ["launcher.env.X=4", "nproc=0"], "nproc=0"),
        ("check", ["output.dir=a(b)"], """'output.dir="a(b)"'"""),
        ("check", ["output.dir=mél"], """'output.dir="mél"'"""),
        ("check", ["output.dir=my", "runs"], "Write key=value in one word"),
        ("check", ["nproc", "=", "2"], "without spaces around the ="),
        ("check", ["--nproc=2"], "without dashes: nproc=2"),
        ("compare", ["runs=nowhere"], "nowhere is not a folder"),
        ("compare", ["runs=nowhere,nothing"], "nowhere is not a folder"),
        ("compare", ["runs=[a{b}]"], "Quote each text in it"),
        ("compare", ["level=statistical", "runs=[a,b]"], "level=statistical"),
    ],
)
def test_a_mistake_is_told_in_short(command: str, overrides: list[str], told: str, tmp_path: Path) -> None:
    done = run(command, *overrides, cwd=tmp_path)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("runs/*/launch-*"))


def test_a_value_quoted_as_the_hint_says_is_read() -> None:
    parser = OverridesParser.create()
    for value in ("a(b)", "mél", "~/x", "#1", "a=b", 'a"b', "C:\\(x)", "end(\\", "[a{b}", "it's"):
        hint = how_to_write(f"output.dir={value}")
        if not value.startswith("["):
            (written,) = shlex.split(hint.partition("Hydra: ")[2])
            assert parser.parse_override(written).value() == value


def test_lists_need_no_brackets() -> None:
    assert as_meant(["runs=a", "compare.allow=x,y", "nproc=2"]) == ["runs=[a]", "compare.allow=[x,y]", "nproc=2"]
    assert as_meant(["runs=[a]", "runs=", "-n"]) == ["runs=[a]", "runs=", "-n"]
    assert as_meant(["-m", "runs=a,b"]) == ["-m", "runs=a,b"]
    assert as_meant(["-m", "runs=a", "seeds=range(1,3)"]) == ["-m", "runs=[a]", "seeds=range(1,3)"]


def test_several_drivers_are_sent_away_with_the_right_command(tmp_path: Path) -> None:
    outer = {"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "RANK": "0"}
    first = run("check", cwd=tmp_path, extra=outer)
    first.assert_short_refusal()
    assert "torchrun -m ddp_repro.check nproc=4" in first.stderr
    other = run("check", cwd=tmp_path, extra={**outer, "LOCAL_RANK": "3", "RANK": "3"})
    assert (other.code, other.stdout, other.stderr) == (2, "", "")
    nodes = {**outer, "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "8"}
    first = run("check", cwd=tmp_path, extra={**nodes, "GROUP_RANK": "0"})
    first.assert_short_refusal()
    assert "torchrun --nnodes 2 --nproc-per-node 1 … -m ddp_repro.check nproc=4" in first.stderr
    other = run("check", cwd=tmp_path, extra={**nodes, "GROUP_RANK": "1", "RANK": "4"})
    assert (other.code, other.stdout, other.stderr) == (2, "", "")


def test_a_command_of_one_node_says_so_once(tmp_path: Path) -> None:
    outer = {"LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    first = run("compare", "runs=[a,b]", cwd=tmp_path, extra={**outer, "GROUP_RANK": "0"})
    first.assert_short_refusal()
    assert "compare runs on one node, and torchrun started it on 2" in first.stderr
    other = run("compare", "runs=[a,b]", cwd=tmp_path, extra={**outer, "GROUP_RANK": "1"})
    assert (other.code, other.stdout, other.stderr) == (2, "", "")


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    done = run("check", "output.dir=mine", cwd=tmp_path)
    done.assert_short_refusal()
    assert "mine" in done.stderr
    assert "overwrite" in done.stderr
    assert (tmp_path / "mine" / "run.json").read_text() == "{}"


@pytest.mark.parametrize("command", ["check", "record", "compare"])
def test_help_names_the_command_its_use_and_its_codes(command: str, tmp_path: Path) -> None:
    done = run(command, "--help", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{command}: ")
    assert f"Usage: python -m ddp_repro.{command} key=value" in done.stdout
    assert "Exit codes: 0 " in done.stdout
    assert "powered by" not in done.stdout
    assert ("workload: custom, digits" in done.stdout) == (command != "compare")


def test_help_and_cfg_are_no_verdicts(tmp_path: Path) -> None:
    for flag in ("--help", "--cfg=job"):
        done = run("check", flag, cwd=tmp_path)
        assert done.code == 0
        assert "nproc: 4" in done.stdout
        assert "NOT_JUDGED" not in done.stdout.splitlines()
