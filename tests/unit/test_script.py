"""Reading what script is asked for, its environment, the rounds of its optimizers, and what twins move."""

import os
import select
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ddp_repro.config import CheckConfig, RecordConfig, Seeding, is_script, semantic
from ddp_repro.errors import ReproError
from ddp_repro.observe.recorder import Recorder, number
from ddp_repro.run.environment import script_environment
from ddp_repro.run.launch_environment import determinism_of
from ddp_repro.run.progress import RELEASE_VARIABLE, VARIABLE, LineReader, ProgressPipe
from ddp_repro.run.rounds import Rounds
from ddp_repro.run.variants import moved_fields, variants
from ddp_repro.trace.reader import read_trace
from ddp_repro.trace.schema import TraceMeta
from ddp_repro.trace.writer import TraceWriter
from ddp_repro.validation import validate_launch
from ddp_repro.workload.script import read_script, run_as_main

SET_BY_SCRIPTS = {
    "experiment.backend",
    "experiment.determinism_in_force",
    "environment.threads",
    "environment.interop_threads",
    "environment.variables",
}


def optimizers(count: int) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1) for _ in range(count)]


@pytest.mark.parametrize(
    ("order", "done"),
    [
        ("aaa", [1, 2, 3]),
        ("abab", [1, 1, 2, 2]),
        ("aaabaaab", [1, 2, 3, 3, 4, 5, 6, 6]),
        ("aabbb", [1, 2, 2, 3, 4]),
        ("abaab", [1, 1, 2, 3, 3]),
    ],
)
def test_rounds_of_steps(order: str, done: list[int]) -> None:
    rounds, known = Rounds(), dict(zip("ab", optimizers(2), strict=True))
    counted = []
    for name in order:
        rounds.add(known[name])
        counted.append(rounds.done)
    assert counted == done


def test_a_round_is_complete_when_all_of_the_last_one_have_stepped() -> None:
    rounds, (a, b) = Rounds(), optimizers(2)
    seen = []
    for optimizer in (a, b, a, b):
        rounds.add(optimizer)
        seen.append(rounds.is_complete)
    assert seen == [True, True, False, True]
    assert rounds.begins(a)
    rounds.add(a)
    assert rounds.begins(a)
    assert not rounds.begins(b)


def test_rounds_do_not_depend_on_what_was_collected() -> None:
    counted = []
    for keep in (True, False):
        rounds, kept = Rounds(), []
        for _ in range(4):
            (optimizer,) = optimizers(1)
            rounds.add(optimizer)
            rounds.add(optimizer)
            kept += [optimizer] if keep else []
            del optimizer
        counted.append(rounds.done)
    assert counted[0] == counted[1]


def script_config(threads: int | None = None, **changed: object) -> CheckConfig:
    """Return what ``workload=script`` composes to."""
    workload = {"path": __file__, "module": None, "args": "--a 1", "data_id": None}
    return CheckConfig(workload=workload, seeding=Seeding.leave, threads=threads, **changed)  # type: ignore[arg-type]


def test_what_identifies_a_script_is_neither_its_folder_nor_its_content(tmp_path: Path) -> None:
    (tmp_path / "test_script.py").write_text("other content")
    here, there = script_config(), script_config()
    there.workload = {**here.workload, "path": str(tmp_path / "test_script.py"), "args": "--a    '1'"}
    assert is_script(here)
    assert semantic(here) == semantic(there)
    there.workload["args"] = "--a 2"
    assert semantic(here) != semantic(there)


def test_arguments_are_split_as_a_shell_splits_them() -> None:
    script = read_script({"path": __file__, "args": """--lr 1e-3 --name "a b" --none null"""})
    assert script.arguments == ("--lr", "1e-3", "--name", "a b", "--none", "null")


def test_a_built_in_workload_is_no_script_and_keeps_its_identity() -> None:
    config = RecordConfig(workload={"_target_": "a.b", "path": "x"})
    assert not is_script(config)
    assert "seeding" not in semantic(config)
    with pytest.raises(ReproError, match="seeding=leave"):
        validate_launch(RecordConfig(workload={"_target_": "a.b"}, seeding=Seeding.leave))


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ReproError, match="no such module"):
        run_as_main(read_script({"module": "no.such"}))


def test_the_environment_is_the_callers_less_an_outer_launch() -> None:
    environ = {"A": "1", "RANK": "3", "TORCHELASTIC_RUN_ID": "x", "PET_NNODES": "2", "OMP_NUM_THREADS": "3"}
    made = script_environment(environ, {"PYTHONHASHSEED": "0"}, nproc=2)
    assert (made["A"], made["OMP_NUM_THREADS"], made["PYTHONHASHSEED"]) == ("1", "3", "0")
    assert "RANK" not in made
    assert "PET_NNODES" not in made
    assert made["TORCHELASTIC_RUN_ID"] != "x"
    assert script_environment({}, {}, nproc=2)["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in script_environment({}, {}, nproc=1)


def test_injected_seeds_come_with_a_hash_seed() -> None:
    config = script_config()
    assert determinism_of(config).hash_seed is None
    config.seeding = Seeding.inject
    assert determinism_of(config).hash_seed == 0


def test_twins_allow_exactly_what_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_DYNAMIC", "MKL_DYNAMIC", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    base = script_config(twins=[["a"], ["b"]])
    one, other = script_config(), script_config(threads=2)
    other.seeding, other.seed = Seeding.inject, 4
    other.workload = {**base.workload, "args": "--b", "data_id": "v2"}
    other.twins = base.twins
    planned = variants(base, [one, other])
    assert [variant.launches for variant in planned] == [(0,), (1,)]
    assert planned[0].allow == ()
    threads = {f"environment.variables.{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS")}
    dynamic = {f"environment.variables.{name}_DYNAMIC" for name in ("OMP", "MKL")}
    assert set(planned[1].allow) == threads | dynamic | {
        "experiment.seed",
        "experiment.threads",
        "environment.threads",
        "experiment.config.seeding",
        "experiment.config.workload.args",
        "experiment.determinism_in_force.hash_seed",
        "environment.variables.PYTHONHASHSEED",
        "experiment.data",
        *SET_BY_SCRIPTS,
    }


def test_twins_allow_what_a_script_sets_where_they_change_what_it_reads(tmp_path: Path) -> None:
    base = script_config(twins=[["a"], ["b"]])

    def moved(**changes: Any) -> set[str]:
        twin = script_config()
        twin.workload = {**base.workload, **changes}
        return set(moved_fields(base, twin))

    assert moved() == set()
    assert moved(data_id="v2") == {"experiment.data"}
    assert moved(args="--threads 2") == {"experiment.config.workload.args", *SET_BY_SCRIPTS}
    (tmp_path / "test_script.py").touch()
    assert moved(path=str(tmp_path / "test_script.py")) == SET_BY_SCRIPTS  # its folder is no part of the identity
    twin = script_config()
    twin.launcher.env = {"MINE": "1"}
    assert set(moved_fields(base, twin)) == {"experiment.config.launcher.env.MINE", *SET_BY_SCRIPTS}
    assert moved_fields(CheckConfig(workload={"_target_": "a", "b": 1}), CheckConfig(workload={"_target_": "a"})) == (
        "experiment.config.workload.b",
    )


def test_launches_are_counted_for_each_twin() -> None:
    assert CheckConfig().launches_each == 2
    base = script_config(twins=[["a"], ["b"]])
    assert base.launches_each == 1
    base.launches = 2
    twins = [script_config(launches=2), script_config(launches=2)]
    assert [variant.launches for variant in variants(base, twins)] == [(0, 1), (2, 3)]


def test_a_pending_recorder_keeps_its_rows_until_it_is_opened(tmp_path: Path) -> None:
    recorder = Recorder(None, pending=True)
    recorder.add_fact("loss", "loss", number(1.0))
    recorder.finish_step()
    writer = TraceWriter(
        tmp_path / "rank-0.arrows", TraceMeta(identity="a", launch=0, rank=0, world_size=1, capture="step")
    )
    recorder.open(writer)
    recorder.add_fact("loss", "loss", number(2.0))
    recorder.flush()
    writer.close("finished")
    trace = read_trace(tmp_path / "rank-0.arrows")
    assert trace.whole
    assert (trace.step.tolist(), np.asarray(trace.value).tolist()) == ([0, 1], [1.0, 2.0])


def test_a_forked_child_says_nothing_and_a_rank_waits_for_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    told, release = os.pipe(), os.pipe()
    monkeypatch.setenv(VARIABLE, str(told[1]))
    monkeypatch.setenv(RELEASE_VARIABLE, str(release[0]))
    pipe = ProgressPipe(0)
    assert VARIABLE not in os.environ
    assert not os.get_inheritable(told[1])
    child = os.fork()
    if child == 0:
        pipe.send("step", step=9)
        os._exit(0)
    os.waitpid(child, 0)
    pipe.send("step", step=1)
    assert [message.step for message in LineReader().feed(os.read(told[0], 4096))] == [1]
    pipe.await_release(0.0)
    assert not select.select([release[0]], [], [], 0)[0]
    os.close(release[1])
    pipe.await_release(60.0)
    pipe.silence()
    os.close(told[0])
