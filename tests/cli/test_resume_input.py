"""`resume` with scripts and arguments that do not do what they should: told in short, or placed."""

from pathlib import Path

import pytest

from tests.command import Done, run

pytestmark = pytest.mark.worlds

SCRIPT = Path(__file__).parents[1] / "scripts" / "resumable.py"
SAVE = 'resume.save_args="--save {checkpoint} --stop-after {step}"'
LOAD = 'resume.load_args="--resume {checkpoint}"'


def resumed(folder: Path, *overrides: str, wrong: str = "", to: str = "run") -> Done:
    args = [f"workload.args='--wrong \"{wrong}\"'"] if wrong else []
    of_script = ["nproc=3", "workload=script", f"workload.path={SCRIPT}", *args]
    return run("resume", *of_script, *overrides, f"output.dir={to}", "output.progress=false", cwd=folder)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([SAVE], "resume.load_args does not say where the checkpoint is"),
        ([LOAD], "resume.save_args does not say where the checkpoint is"),
        (['resume.save_args="--save {checkpoint}"', LOAD], "does not tell the script when to save"),
        ([SAVE, 'resume.load_args="--resume {chekpoint}"'], "resume.load_args does not say"),
        ([SAVE, LOAD, "resume.at=[[5,2]]"], "no rising list of steps"),
        ([SAVE, LOAD, "resume.stop_after=0"], "resume.at holds 0"),
        ([SAVE, LOAD, "resume.stop=kill", "resume.every=0"], "resume.every=0"),
    ],
)
def test_arguments_that_do_not_fit_are_told_before_anything_is_launched(
    overrides: list[str], told: str, tmp_path: Path
) -> None:
    done = resumed(tmp_path, *overrides)
    done.assert_short_refusal()
    assert told in done.stderr
    assert not list(tmp_path.glob("run/launch-*"))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("saves nothing", "launch 1 saved nothing in"), ("fails to load", "last.pt")],
)
def test_a_script_that_does_not_save_or_load_is_not_judged(wrong: str, told: str, tmp_path: Path) -> None:
    done = resumed(tmp_path, SAVE, LOAD, "resume.at=[4]", wrong=wrong)
    done.assert_short_refusal()
    assert told in (done.stdout + done.stderr).replace("\n           ", "")


def test_a_step_beyond_the_end_is_told(tmp_path: Path) -> None:
    done = resumed(tmp_path, SAVE, LOAD, "resume.at=[8]")
    done.assert_short_refusal()
    assert "names step 8, and the training takes 8 optimizer steps" in done.stderr


def test_a_script_that_begins_anew_did_not_go_on(tmp_path: Path) -> None:
    done = resumed(tmp_path, SAVE, LOAD, "resume.at=[4]", wrong="begins anew")
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.code, done.last_line) == (1, "DIVERGED")
    (found,) = done.verdict["findings"]
    assert (found["witness"], found["cause"], found["step"], found["launches"]) == ("twins", "begun-anew", 4, [0, 2])
    assert "resume.load_args" in found["advice"]


def test_several_models_and_optimizers_go_on_from_any_step_and_a_folder_with_spaces(tmp_path: Path) -> None:
    done = resumed(tmp_path, SAVE, LOAD, "resume.at=[[2,5],1]", to="my run")
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.code, done.verdict["findings"]) == (0, []), done.stdout


def test_the_state_of_the_optimizer_that_steps_second_is_placed_at_the_boundary(tmp_path: Path) -> None:
    done = resumed(tmp_path, SAVE, LOAD, "resume.at=[4]", wrong="half the moments")
    assert done.verdict is not None, done.stdout + done.stderr
    (found,) = done.verdict["findings"]
    place = (found["cause"], found["step"], found["ranks"], found["phase"])
    assert place == ("restored-optimizer", 4, [0, 1, 2], "boundary")


def test_a_script_that_saves_at_steps_of_its_own_goes_on_from_the_last_of_them(tmp_path: Path) -> None:
    save = 'resume.save_args="--save {checkpoint} --every 2"'
    done = resumed(tmp_path, save, LOAD, "resume.stop_after=5")
    assert done.verdict is not None, done.stdout + done.stderr
    assert (done.code, done.verdict["findings"]) == (0, []), done.stdout
    assert "launch 2: goes on from step 4, not 5" in done.verdict["notes"]
