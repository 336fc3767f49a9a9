from dataclasses import replace
from pathlib import Path

from ddp_repro.errors import Verdict
from ddp_repro.judge.comparable import as_twins
from ddp_repro.judge.divergence import compare_launches
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.judge.leftout import Reason
from tests.unit.synthetic import Ranks, Row, Rows, Script, launch_of, ranks, write_launch

CLEAN = ranks(Script(world_size=3, workers=2))
LOADER = "DistributedSampler[0]"


def judged(root: Path, *written: Ranks) -> Judgement:
    return judge([write_launch(root, at, one) for at, one in enumerate(written)], Rules())


def unseeded(rows: Rows, name: str, word: str, *, from_step: int = 99) -> Rows:
    """Return the rows with a generator in another state, which moves from ``from_step`` on."""
    return [
        replace(row, content=f"{word} {row.step if row.step >= from_step else ''}") if name in row.name else row
        for row in rows
    ]


def everywhere(name: str, word: str, *, from_step: int = 99) -> Ranks:
    return {rank: unseeded(rows, name, word, from_step=from_step) for rank, rows in CLEAN.items()}


def test_another_state_of_a_generator_that_nothing_drew_from_is_a_note(tmp_path: Path) -> None:
    found = judged(tmp_path, *(everywhere("python", word) for word in ("one", "other", "third")))
    assert (found.verdict, found.classes, found.findings) == (Verdict.REPRODUCIBLE, [[0, 1, 2]], [])
    (note,) = [note for note in found.notes if "compared without" in note]
    assert note.startswith("launches 0 to 2: compared without ")
    assert "of generators that nothing drew from" in note


def test_it_counts_as_soon_as_something_draws(tmp_path: Path) -> None:
    found = judged(tmp_path, *(everywhere("python", word, from_step=3) for word in ("one", "other")))
    (one,) = [one for one in found.findings if one.severity == "error"]
    assert (one.cause, one.step, one.phase) == ("rng-unseeded", 0, "rng")


def test_it_counts_where_only_one_launch_draws(tmp_path: Path) -> None:
    drawn = {rank: unseeded(rows, "python", "", from_step=3) for rank, rows in CLEAN.items()}
    found = judged(tmp_path, everywhere("python", ""), drawn)
    assert (found.findings[0].cause, found.findings[0].step) == ("rng-draws", 3)


def test_a_workers_generator_that_never_moves_is_left_out_and_one_that_does_is_not(tmp_path: Path) -> None:
    still = judged(tmp_path / "still", *(everywhere("worker0.python", word) for word in ("one", "other")))
    assert still.verdict is Verdict.REPRODUCIBLE
    moving = judged(tmp_path / "moving", CLEAN, everywhere("worker0.numpy.before", "other"))
    assert (moving.findings[0].witness, moving.findings[0].phase) == ("launches", "rng")


def test_equal_states_are_not_left_out_of_twins_for_an_evaluation_that_one_of_them_makes() -> None:
    evaluated = {rank: list(rows) for rank, rows in CLEAN.items()}
    for rows in evaluated.values():
        at = next(at for at, row in enumerate(rows) if row.name.startswith("SequentialSampler") and "batch" in row.name)
        rows.insert(at, Row(rows[at].step, "rng", "python", "state", "python never drawn"))
    without = ranks(Script(world_size=3, workers=2, evaluate=False))
    one, other, left_out = as_twins(launch_of(evaluated), launch_of(without, index=1))
    assert compare_launches(one, other) is None
    assert (left_out[Reason.UNUSED], left_out[Reason.EVALUATION] > 0) == (0, True)


def test_equal_states_are_never_left_out(tmp_path: Path) -> None:
    found = judged(tmp_path, CLEAN, CLEAN)
    assert not [note for note in found.notes if "compared without" in note]
