"""Resuming the built-in training: exact from every step, and a restart that loses something is placed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.errors import Verdict
from ddp_repro.judge.epoch_starts import steps_done
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.judgement import Rules
from ddp_repro.judge.resume_judgement import LAYOUT_ONLY, Stretch, judge_resumed
from ddp_repro.trace.launch import Launch, load_launch
from ddp_repro.trace.layout import RunFolder
from tests.command import run

pytestmark = pytest.mark.worlds

TARGET = ("workload._target_=planted.resumable.build",)
VARIANTS = {
    "plain": (),
    "accumulation": ("train.accumulate=2",),
    "bf16": ("train.precision=bf16",),
    "scaler": ("train.grad_scaler=true",),
    "static-graph": ("ddp.static_graph=true",),
    "unused": ("ddp.find_unused_parameters=true",),
    "views": ("ddp.gradient_as_bucket_view=true",),
    "own-buffers": ("ddp.broadcast_buffers=false",),
    "small-buckets": ("ddp.bucket_cap_mb=0.004",),
    "worker-streams": ("data.reseed=worker",),
}


def recorded(folder: Path, name: str, *overrides: str) -> Launch:
    done = run("record", *TARGET, *overrides, f"output.dir={name}", "output.progress=false", cwd=folder)
    assert done.code == 0, done.stdout + done.stderr
    return load_launch(RunFolder(folder / name).launch(0))


def walked(folder: Path, overrides: tuple[str, ...]) -> tuple[list[Launch], Judgement]:
    """Save after every step of one training, go on from each checkpoint, and judge all of it as `resume` does."""
    straight = recorded(folder, "straight", *overrides, "capture.boundary=every")
    steps = steps_done(straight.traces[0])
    places = list(range(1, steps))
    saved = recorded(
        folder, "saved", *overrides, "checkpoint.dir=saved-steps", f"checkpoint.at={places}", "checkpoint.keep=99"
    )
    launches, stretches = [straight, replace(saved, index=1)], [Stretch(launch=1, begins=0, stops=steps)]
    for number, place in enumerate(places, start=2):
        load = f"checkpoint.load=saved-steps/step-{place:08d}"
        launch = recorded(folder, f"from-{place}", *overrides, load, "capture.boundary=first")
        launches.append(replace(launch, index=number))
        stretches.append(Stretch(launch=number, begins=place))
    return launches, judge_resumed(launches, stretches, Rules())


def cases() -> list[Any]:
    """Return every combination; the suite has two of them, with workers and without."""
    suite = {(3, 0, "plain"), (3, 2, "accumulation")}
    every = [(ranks, workers, variant) for ranks in (1, 2, 3, 4) for workers in (0, 2) for variant in VARIANTS]
    return [
        pytest.param(*case, id="-".join(map(str, case)), marks=[] if case in suite else [pytest.mark.full])
        for case in every
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("ranks", "workers", "variant"), cases())
def test_every_step_can_be_the_last_before_a_restart(ranks: int, workers: int, variant: str, tmp_path: Path) -> None:
    overrides = (f"nproc={ranks}", f"data.num_workers={workers}", *VARIANTS[variant])
    launches, found = walked(tmp_path, overrides)
    assert len(launches) >= 5
    assert (found.verdict, found.findings, found.problems) == (Verdict.REPRODUCIBLE, [], [])
    assert ranks == 1 or not any(LAYOUT_ONLY in note for note in found.notes)
    for launch in launches[2:]:  # something was compared: the whole rest of the training, from the right step on
        begins = int(launch.path.parent.name.removeprefix("from-"))
        trace = launch.traces[0]
        assert min(step for step in trace.step.tolist() if step >= 0) == begins
        assert int(trace.step.max()) == int(launches[0].traces[0].step.max())
        assert "boundary" in trace.phases


@pytest.mark.parametrize("persistent", [pytest.param(False, marks=pytest.mark.full), True])
def test_four_workers_persistent_or_not(persistent: bool, tmp_path: Path) -> None:
    overrides = [*TARGET, "nproc=3", "data.num_workers=4", f"data.persistent_workers={persistent}"]
    done = run("resume", *overrides, "resume.at=[[3,6]]", "output.dir=run", cwd=tmp_path)
    assert done.verdict is not None
    assert (done.code, done.verdict["verdict"], done.verdict["findings"]) == (0, "REPRODUCIBLE", []), done.stdout
    assert done.verdict["classes"] == [[0, 1, 2, 3]]


def test_a_world_that_is_killed_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    overrides = [*TARGET, "nproc=3", "train.epochs=4", "resume.stop=kill", "resume.every=3"]
    done = run("resume", *overrides, "resume.at=[[4,10]]", "output.dir=run", cwd=tmp_path)
    assert done.verdict is not None
    assert (done.code, done.verdict["findings"]) == (0, []), done.stdout
    folder = RunFolder(tmp_path / "run")
    outcomes = [json.loads(launch.record.read_text())["outcome"] for launch in folder.launches()]
    assert outcomes == ["finished", "killed", "killed", "finished"]
    went_on = [load_launch(folder.launch(number)).traces[0] for number in (2, 3)]
    assert [min(step for step in trace.step.tolist() if step >= 0) % 3 for trace in went_on] == [0, 0]


@pytest.mark.full
def test_a_rank_that_is_killed_before_its_first_step_is_no_difference(tmp_path: Path) -> None:
    script = ["workload=script", f"workload.path={Path(__file__).parents[1] / 'scripts' / 'late.py'}", "nproc=3"]
    arguments = ['resume.save_args="--save {checkpoint}"', 'resume.load_args="--resume {checkpoint}"']
    killed = ["resume.stop=kill", "resume.at=[2]", "resume.every=1"]
    done = run("resume", *script, *arguments, *killed, "output.dir=run", cwd=tmp_path)
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.code, done.verdict["findings"]) == (0, []), done.stdout
    assert RunFolder(tmp_path / "run").launch(1).ranks() == [0, 1]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("unsaved_generator", {"cause": "restored-generator", "phase": "rng", "step": 3}),
        ("unsaved_counter", {"cause": "forward-operator", "phase": "loss", "step": 3}),
    ],
)
def test_what_no_checkpoint_holds_is_placed(workload: str, expected: dict[str, Any], tmp_path: Path) -> None:
    target = f"workload._target_=planted.resumable.{workload}"
    done = run("resume", target, "nproc=3", "resume.at=[3]", "output.dir=run", cwd=tmp_path)
    assert done.verdict is not None
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout
    (finding,) = [one for one in done.verdict["findings"] if one["severity"] == "error"]
    assert finding["witness"] == "twins"
    assert finding["launches"] == [0, 2]
    assert finding["ranks"] == [0, 1, 2]
    assert {key: finding[key] for key in expected} == expected


def test_a_training_that_does_not_repeat_is_not_blamed_on_the_restart(tmp_path: Path) -> None:
    target = "workload._target_=planted.workloads.unseeded_library"
    overrides = [target, "nproc=2", "train.max_steps=4", "resume.at=[2]"]
    done = run("resume", *overrides, "output.dir=run", cwd=tmp_path)
    assert done.verdict is not None
    first = done.verdict["findings"][0]
    assert (done.code, first["witness"], first["launches"], first["step"]) == (1, "launches", [0, 1], 0)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["resume.at=[0]"], "resume.at holds 0"),
        (["resume.at=[two]"], "resume.at holds two"),
        (["resume.stop=gently"], "stop"),
        (["resume.every=2"], "resume.every=2"),
        (["resume.save_args=x"], "are for scripts"),
        (["checkpoint.dir=mine"], "saves and loads checkpoints itself"),
        (["workload=script", "workload.path=nowhere.py"], "nowhere.py"),
    ],
)
def test_a_mistake_is_told_before_anything_is_launched(overrides: list[str], words: str, tmp_path: Path) -> None:
    done = run("resume", *overrides, cwd=tmp_path)
    done.assert_short_refusal()
    assert words in done.stderr
    assert not list(tmp_path.glob("runs/*/launch-*"))


def test_a_step_that_never_comes_is_told_in_short(tmp_path: Path) -> None:
    done = run("resume", *TARGET, "nproc=2", "train.max_steps=3", "resume.at=[3]", cwd=tmp_path)
    done.assert_short_refusal()
    assert "names step 3, and the training takes 3 optimizer steps" in done.stderr


def test_record_saves_and_goes_on_and_refuses_another_world(tmp_path: Path) -> None:
    recorded(tmp_path, "first", "nproc=2", "checkpoint.dir=steps", "checkpoint.stop=3")
    assert [path.name for path in (tmp_path / "steps").iterdir()] == ["step-00000003"]
    rest = recorded(tmp_path, "rest", "nproc=2", "checkpoint.load=steps")
    assert min(step for step in rest.traces[0].step.tolist() if step >= 0) == 3
    for other, field in (("nproc=3", "experiment.world_size"), ("data.num_workers=1", "data.num_workers")):
        overrides = [*TARGET, "nproc=2", other, "checkpoint.load=steps", f"output.dir=refused-{other[:2]}"]
        done = run("record", *overrides, cwd=tmp_path)
        done.assert_short_refusal()
        assert field in done.stderr
    allowed = "checkpoint.allow=[experiment.config.data.num_workers]"
    launches = ["data.num_workers=1", allowed, "checkpoint.load=steps", "launches=2", "output.dir=allowed"]
    done = run("check", *TARGET, "nproc=2", *launches, cwd=tmp_path)
    assert done.verdict is not None
    assert done.verdict["verdict"] == "REPRODUCIBLE", done.stdout
    assert any("not an exact continuation" in note and "num_workers" in note for note in done.verdict["notes"])
