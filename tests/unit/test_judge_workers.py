from pathlib import Path

from ddp_repro.errors import Verdict
from ddp_repro.judge.between import WORKERS_NOT_COMPARED
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.judgement import Rules, judge
from tests.unit.synthetic import Ranks, Script, Writing, changed, identity, ranks, write_launch

FIELD = "experiment.config.data.num_workers"
WITHOUT, WITH = ranks(Script(workers=0)), ranks(Script(workers=2))


def judged(root: Path, one: Ranks, other: Ranks, allow: tuple[str, ...]) -> Judgement:
    launches = [
        write_launch(
            root,
            number,
            written,
            Writing(identities=dict.fromkeys(written, identity(experiment__config__data__num_workers=workers))),
        )
        for number, (written, workers) in enumerate([(one, 0), (other, 2)])
    ]
    return judge(launches, Rules(allow=allow))


def test_rows_of_workers_do_not_count_where_their_number_may_differ(tmp_path: Path) -> None:
    assert any("worker" in row.name for row in WITH[0])
    assert not any("worker1" in row.name for row in WITHOUT[0])
    found = judged(tmp_path, WITHOUT, WITH, (FIELD,))
    assert found.verdict is Verdict.REPRODUCIBLE
    assert WORKERS_NOT_COMPARED in found.notes


def test_other_batches_still_count(tmp_path: Path) -> None:
    planted = {**WITH, 1: changed(WITH[1], phase="loss", step=1)}
    found = judged(tmp_path, WITHOUT, planted, (FIELD,))
    assert found.verdict is Verdict.DIVERGED
    assert (found.findings[0].phase, found.findings[0].step, found.findings[0].ranks) == ("loss", 1, (1,))


def test_without_the_allowance_the_number_of_workers_is_refused(tmp_path: Path) -> None:
    found = judged(tmp_path, WITHOUT, WITH, ())
    assert found.verdict is Verdict.NOT_JUDGED
    assert WORKERS_NOT_COMPARED not in found.notes
