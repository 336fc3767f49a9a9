"""A training script that knows nothing of this product: started as torchrun starts it, and followed to any end."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.launch import read_launch_record
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import read_trace
from tests.command import Done, environment, run

pytestmark = pytest.mark.worlds

SCRIPTS = Path(__file__).parents[1] / "scripts"
PLAIN = f"workload.path={SCRIPTS / 'plain.py'}"
ENDINGS = f"workload.path={SCRIPTS / 'endings.py'}"
OF_A_LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE")
OF_THE_AGENT = ("TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE")


def told(folder: Path, rank: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"{rank}.json").read_text())
    return content


def torchrun(folder: Path, *arguments: str) -> None:
    """Start the plain script with two ranks in the way that it is started without this product."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *arguments]
    subprocess.run(command, cwd=folder, env=environment({"MINE": "1"}), timeout=120, check=True, capture_output=True)


def test_a_script_finds_what_torchrun_would_give_it(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    torchrun(tmp_path, str(SCRIPTS / "plain.py"), "--lr", "1e-3", "--name", "a b", "--dump", "theirs")
    args = """workload.args='--lr 1e-3 --name "a b" --dump ours'"""
    # As inherited from an outer launch: none of it is the script's.
    outer = {"MINE": "1", "TORCHELASTIC_RUN_ID": "outer", "RANK": "0", "MASTER_PORT": "1", "GROUP_RANK": "5"}
    done = run("check", "workload=script", PLAIN, args, "nproc=2", "output.dir=run", cwd=tmp_path, extra=outer)
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    for rank in range(2):
        ours, theirs = told(tmp_path / "ours", rank), told(tmp_path / "theirs", rank)
        assert ours["argv"][1:] == ["--lr", "1e-3", "--name", "a b", "--dump", "ours"]
        for key in ("cwd", "path", "name", "file", "threads", "deterministic", "hash_seed", "root_handlers"):
            assert ours[key] == theirs[key], key
        assert ours["environ"]["DDP_REPRO_WORLD"]
        environs = [
            {
                name: value
                for name, value in one["environ"].items()
                if name not in OF_A_LAUNCH + OF_THE_AGENT
                and not name.startswith("DDP_REPRO_")  # ours, and of the tests
            }
            for one in (ours, theirs)
        ]
        assert environs[0] == environs[1]
        assert set(OF_A_LAUNCH) <= set(ours["environ"])
    assert told(tmp_path / "ours", 0)["drawn"] != told(tmp_path / "ours", 1)["drawn"]  # nobody seeded
    launch = RunFolder(tmp_path / "run").launch(1)
    assert "configured by the script: joined" in launch.log(0).read_text()
    assert "MINE" not in RunFolder(tmp_path / "run").run.read_text()  # an inherited environment may hold secrets
    identity = json.loads(launch.rank_identity(1).read_text())
    experiment = identity["experiment"]
    assert experiment["config"]["workload"] == {
        "path": "plain.py",
        "module": None,
        "args": "--lr 1e-3 --name 'a b' --dump ours",
    }
    assert (experiment["world_size"], experiment["backend"], experiment["data"]) == (2, "gloo", None)
    assert (experiment["seed"], experiment["threads"], identity["environment"]["threads"]) == (None, None, 1)
    assert experiment["determinism_in_force"]["cudnn_benchmark"] is True  # as the script set it
    assert experiment["determinism_in_force"]["hash_seed"] == "random"
    assert not {"data", "ddp"} & set(experiment["config"])
    trace = read_trace(launch.trace(1))
    assert (trace.end, max(trace.step.tolist())) == ("finished", 12)  # the end of the last pass is seen after step 11
    assert {"init", "data", "rng", "loss", "grad_local", "grad_reduced", "param"} <= set(trace.phases)


def test_a_module_that_is_asked_to_be_seeded_and_is_ended_after_steps(tmp_path: Path) -> None:
    overrides = ["workload=script", "workload.module=scripts.plain", "nproc=2", "output.dir=run"]
    asked = ["seeding=inject", "seed=3", "determinism=debug", "threads=2", "train.max_steps=3", "workload.data_id=v1"]
    (tmp_path / "dump").mkdir()
    args = 'workload.args="--epochs 1000 --dump dump"'
    folders = os.pathsep.join([str(SCRIPTS.parent), str(SCRIPTS)])
    extra = {"PYTHONPATH": os.pathsep.join([folders, os.environ.get("PYTHONPATH", "")])}
    done = run("check", *overrides, *asked, args, cwd=tmp_path, extra=extra)
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    folder = RunFolder(tmp_path / "run")
    for launch in folder.launches():
        traces = [read_trace(launch.trace(rank)) for rank in range(2)]
        assert [trace.end for trace in traces] == ["max_steps", "max_steps"]
        assert [sorted(set(trace.step.tolist())) for trace in traces] == [[-1, 0, 1, 2]] * 2
        assert all(end.note == "" and end.exit_code == 0 for end in read_launch_record(launch.record).ranks)
    both = [told(tmp_path / "dump", rank) for rank in range(2)]
    assert both[0]["drawn"] == both[1]["drawn"]
    assert [(one["deterministic"], one["threads"], one["environ"]["PYTHONHASHSEED"]) for one in both] == [
        (True, 2, "0")
    ] * 2
    experiment = json.loads(folder.launch(0).rank_identity(0).read_text())["experiment"]
    assert (experiment["seed"], experiment["threads"], experiment["data"]) == (3, 2, {"id": "v1"})
    assert experiment["determinism_in_force"]["deterministic_algorithms"] == "error"
    assert experiment["determinism_in_force"]["cudnn_benchmark"] is True  # read at the first step: the script moved it


def ended(how: str, tmp_path: Path, *overrides: str) -> Done:
    return run(
        "check", "workload=script", ENDINGS, f"workload.args={how}", "nproc=2", "output.dir=run", *overrides,
        cwd=tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", "rank 1: ValueError: the label 11 is unknown (see /"),
        ("finally", "rank 1: ValueError: the label 11 is unknown"),
        ("exit", "rank 1: the script ended with sys.exit(3)"),
        ("vanish", "rank 1: the script ended with os._exit(3)"),
        ("early", "rank 1 ended after 2 steps; then rank 0"),
        ("nothing", "the script took no optimizer step"),
        ("alone", "the script made no process group: its 2 ranks train on their own"),
        ("trained-on", "the script trained on after destroy_process_group"),
    ],
)
def test_a_bad_end_is_told_in_one_sentence(how: str, words: str, tmp_path: Path) -> None:
    done = ended(how, tmp_path)
    done.assert_short_refusal()
    assert done.verdict is not None
    assert done.verdict["verdict"] == "NOT_JUDGED"
    assert words in done.verdict["problems"][0]
    log = RunFolder(tmp_path / "run").launch(0).log(1).read_text()
    assert "runpy" not in log
    assert "run_as_main" not in log  # a traceback begins in the script


def test_helpers_of_a_script_are_not_observed_and_end_with_it(tmp_path: Path) -> None:
    done = ended("helpers", tmp_path, "launches=1")
    assert done.verdict is not None
    assert "one launch" in done.verdict["problems"][0]
    trace = read_trace(RunFolder(tmp_path / "run").launch(0).trace(0))
    assert (trace.end, sorted(set(trace.step.tolist()))) == ("finished", [-1, 0, 1, 2, 3])


def test_a_script_may_go_to_another_folder_and_close_its_output(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "endings.py", tmp_path)
    overrides = ["workload.path=endings.py", "workload.args=elsewhere", "nproc=3", "output.dir=run"]
    done = run("check", "workload=script", *overrides, cwd=tmp_path)
    assert done.code == 0, done.stdout


def test_a_script_that_vanishes_well_or_hangs_on_its_way_out_was_observed(tmp_path: Path) -> None:
    done = ended("vanish-well", tmp_path, "launches=1")
    assert "finished, 4 steps" in done.stderr
    done = ended("teardown", tmp_path, "launches=1", "output.overwrite=true")
    assert "finished, 4 steps" in done.stderr
    record = read_launch_record(RunFolder(tmp_path / "run").launch(0).record)
    assert "still in teardown" in record.ranks[0].note
    assert "still in destroy_process_group" in record.ranks[1].note


@pytest.mark.parametrize(
    ("how", "name"),
    [("changed-after", "weight"), ("changed-at-exit", "bias"), ("own-optimizer", "replica1.weight")],
)
def test_a_model_that_changes_after_the_last_step_is_read_as_the_process_ends(
    how: str, name: str, tmp_path: Path
) -> None:
    done = ended(how, tmp_path)
    assert done.verdict is not None
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    found = done.verdict["findings"][0]
    assert (found["cause"], found["phase"], found["name"]) == ("other-end", "param", name)
    assert "output.dir" not in found["reproduce"]


def test_twins_are_launched_in_one_run(tmp_path: Path) -> None:
    twins = """twins=[["workload.args='--name a'"],["workload.args='--name b'","+launcher.env.OMP_X=1"]]"""
    run("check", "workload=script", PLAIN, "nproc=2", "output.dir=run", twins, cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert [launch.index for launch in folder.launches()] == [0, 1]
    variants = json.loads(folder.run.read_text())["variants"]
    assert [variant["launches"] for variant in variants] == [[0], [1]]
    assert [variant["overrides"][0] for variant in variants] == ["workload.args='--name a'", "workload.args='--name b'"]
    by_script = {"experiment.backend", "experiment.determinism_in_force", "environment.variables"} | {
        f"environment.{kind}threads" for kind in ("", "interop_")
    }
    assert set(variants[0]["allow"]) == {"experiment.config.workload.args", *by_script}
    assert set(variants[1]["allow"]) == {
        "experiment.config.workload.args",
        *by_script,
        "experiment.config.launcher.env.OMP_X",
        "environment.variables.OMP_X",
    }
    for launch, args in enumerate(("--name a", "--name b")):
        identity = json.loads(folder.launch(launch).rank_identity(0).read_text())
        assert identity["experiment"]["config"]["workload"]["args"] == args


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["workload=script"], "no script is named"),
        (["workload=script", "workload.path=nowhere.py"], "workload.path=nowhere.py"),
        (["workload=script", PLAIN, "workload.module=a"], "both workload.path and workload.module"),
        (["workload=script", PLAIN, "workload.args=1e-3"], "was read as float"),
        (["workload=script", PLAIN, """workload.args="it's\""""], "cannot be split"),
        (["workload=script", PLAIN, "data.num_workers=2"], "data.num_workers would do nothing"),
        (["workload=script", PLAIN, "train.epochs=3", "ddp.static_graph=true"], "ddp.static_graph, train.epochs"),
        (["workload=script", PLAIN, "seed=1"], "seed=1 does nothing"),
        (["seeding=leave"], "seeding=leave is for scripts"),
        (['twins=[["seed=1"]]'], "twins names one variant"),
        (['twins=[[],["nproc=2"]]'], "changes nproc"),
        (['twins=[[],["judge.ignore=[a]"]]'], "changes judge"),
        (['twins=[[],["sead=1"]]'], "the twin [sead=1]"),
        (['twins=[[],["twins=[]"]]'], "cannot stand in a twin"),
        (["-m", "seed=1,2", 'twins=[[],["data.num_workers=1"]]'], "twins and -m"),
    ],
)
def test_a_mistake_is_told_before_anything_is_launched(overrides: list[str], words: str, tmp_path: Path) -> None:
    done = run("check", *overrides, cwd=tmp_path)
    done.assert_short_refusal()
    assert words in done.stderr
    assert not (tmp_path / "runs").exists()
