"""What is listed of operators that ran again, and why; what is accepted, and what is not seen at all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.errors import Verdict
from ddp_repro.judge.replacements import replacement_of
from ddp_repro.judge.survey import Kind, Seen, gathered, surveyed
from ddp_repro.report.survey import survey_document
from ddp_repro.trace.layout import RunFolder

PLAIN = Seen(operator="aten::addmm", module="head", source="train.py:3", part="forward", calls=4, compared=4)


def race(differed: int) -> Seen:
    return Seen(
        operator="aten::index_put",
        module="table",
        source="train.py:7",
        part="backward",
        node="IndexBackward0",
        calls=4,
        compared=4,
        differed=differed,
        listed=("index_put: will act deterministically",),
    )


def test_a_workload_without_offenders_has_none() -> None:
    result = surveyed([PLAIN, race(0)], [PLAIN, race(0)], [])
    assert (result.verdict, result.offenders) == (Verdict.REPRODUCIBLE, ())
    assert (result.operators, result.calls) == (2, 16)


def test_what_deterministic_algorithms_cure_is_listed_apart() -> None:
    result = surveyed([PLAIN, race(0)], [PLAIN, race(3)], [])
    (one,) = result.offenders
    assert result.verdict is Verdict.DIVERGED
    assert one.kind is Kind.NOT_IN_USE
    assert (one.differed, one.compared) == (3, 4)
    assert one.says == "index_put: will act deterministically"
    assert "torch.use_deterministic_algorithms(True)" in one.advice
    assert "embedding" in one.advice


def test_what_differs_with_them_on_and_is_not_refused_is_not_known_to_them() -> None:
    (one,) = surveyed([PLAIN, race(1)], [PLAIN, race(3)], []).offenders
    assert one.kind is Kind.UNKNOWN
    assert (one.differed, one.compared) == (4, 8)


def test_what_torch_refuses_is_listed_whether_or_not_it_differed() -> None:
    refused = Seen(
        operator="aten::put_", module="", source="train.py:9", part="forward", calls=1, compared=1, said="put_ does not"
    )
    (one,) = surveyed([PLAIN, refused], [PLAIN], []).offenders
    assert (one.kind, one.says, one.differed) == (Kind.NO_FORM, "put_ does not", 0)


def test_what_is_called_only_with_them_off_counts_where_it_differs() -> None:
    """Some functions of torch are made of other operators under deterministic algorithms."""
    assert surveyed([PLAIN], [PLAIN, race(0)], []).offenders == ()
    assert surveyed([PLAIN], [PLAIN, race(1)], []).offenders[0].kind is Kind.NOT_IN_USE


@pytest.mark.parametrize("pattern", ["aten::index_put", "aten::index*", "train.py:7", "aten::index_put@train.py:7"])
def test_what_is_accepted_is_no_finding(pattern: str) -> None:
    result = surveyed([PLAIN, race(0)], [PLAIN, race(3)], [pattern, "nothing"])
    assert result.verdict is Verdict.REPRODUCIBLE
    assert result.offenders[0].accepted == pattern
    assert "1 of 2 operators at their places accepted" in result.sentence
    assert result.notes == ("survey.accept names nothing, and nothing that is listed is so called",)


def test_what_accepts_just_one_does_so_wherever_its_file_lies() -> None:
    odd = replace(race(0), source="runs [old]/train*.py:7")
    document = survey_document(surveyed([PLAIN], [replace(odd, differed=3)], []), RunFolder(Path("runs/0")), "survey")
    pattern = document["offenders"][0]["accept"]
    assert surveyed([PLAIN], [replace(odd, differed=3)], [pattern]).verdict is Verdict.REPRODUCIBLE
    other = replace(odd, source="runs o/trainer.py:7", differed=3)
    assert surveyed([PLAIN], [other], [pattern]).verdict is Verdict.DIVERGED


def test_nothing_seen_is_no_clean_bill() -> None:
    assert surveyed([], [], []).verdict is Verdict.NOT_JUDGED
    assert surveyed([PLAIN], [], []).verdict is Verdict.NOT_JUDGED


def test_ranks_are_added_up() -> None:
    entry: dict[str, Any] = {
        "operator": "aten::addmm",
        "module": "head",
        "source": "train.py:3",
        "part": "forward",
        "node": "",
        "calls": 2,
        "compared": 2,
        "differed": 1,
        "said": "",
        "listed": [],
    }
    (one,) = gathered([{"entries": [entry]}, {"entries": [entry]}])
    assert (one.calls, one.compared, one.differed) == (4, 4, 2)


def test_the_replacement_goes_by_the_name() -> None:
    assert "embedding" in replacement_of("aten::index_put.hacked_twin")
    assert "one_hot" in replacement_of("aten::bincount")
    assert "index_copy" in replacement_of("aten::put_")
    assert replacement_of("aten::addmm") == ""
