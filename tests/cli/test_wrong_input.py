"""A mistake gets one short message that says what to do next, and the code of a run that was not judged."""

from pathlib import Path

import pytest

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
        ("compare", ["level=statistical", "runs=[a,b]"], "level=statistical"),
    ],
)
def test_a_mistake_is_told_in_short(command: str, overrides: list[str], told: str, tmp_path: Path) -> None:
    done = run(command, *overrides, cwd=tmp_path)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("runs/*/launch-*"))


def test_several_drivers_are_sent_away_with_the_right_command(tmp_path: Path) -> None:
    outer = {"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "RANK": "0"}
    first = run("check", cwd=tmp_path, extra=outer)
    first.assert_short_refusal()
    assert "torchrun -m ddp_repro.check nproc=4" in first.stderr
    other = run("check", cwd=tmp_path, extra={**outer, "LOCAL_RANK": "3", "RANK": "3"})
    assert (other.code, other.stdout, other.stderr) == (2, "", "")


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    done = run("check", "output.dir=mine", cwd=tmp_path)
    done.assert_short_refusal()
    assert "mine" in done.stderr
    assert "overwrite" in done.stderr
    assert (tmp_path / "mine" / "run.json").read_text() == "{}"


def test_help_and_cfg_are_no_verdicts(tmp_path: Path) -> None:
    for flag in ("--help", "--cfg=job"):
        done = run("check", flag, cwd=tmp_path)
        assert done.code == 0
        assert "nproc: 4" in done.stdout
        assert "NOT_JUDGED" not in done.stdout
