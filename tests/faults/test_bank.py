"""Every fault of the bank is caught and placed, and its clean twin passes, through the product as a user runs it.

A world takes seconds and there are over two hundred: the pairs that ``bank.yaml`` marks ``suite: true`` are run always,
all of them with ``--full``.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.bank_run import BANK, Entry, blamed, entries, mismatches, run
from tests.faults.table import RESULTS, TABLE, table

ENTRIES = entries()
WITNESSES = {"launches", "ranks", "twins", "invariants", "identity"}


def pairs() -> list[Any]:
    """Return every entry as a parameter, those outside the suite marked."""
    return [pytest.param(one, id=one["id"], marks=[] if one.get("suite") else [pytest.mark.full]) for one in ENTRIES]


def test_every_script_has_an_entry_and_every_entry_its_scripts() -> None:
    scripts = {path.name for path in BANK.glob("*.py")}
    assert scripts == {f"{one['id']}_{which}.py" for one in ENTRIES for which in ("planted", "clean")}


def test_the_suite_has_every_witness_and_every_verdict() -> None:
    chosen = [one["expect"] for one in ENTRIES if one.get("suite")]
    assert {one["witness"] for one in chosen if "witness" in one} == WITNESSES
    assert {one["verdict"] for one in chosen} == {"REPRODUCIBLE", "DIVERGED", "NOT_JUDGED"}
    assert "warning" in {one.get("severity") for one in chosen}


def test_no_script_knows_the_product() -> None:
    assert [path.name for path in BANK.glob("*.py") if "ddp_repro" in path.read_text()] == []


def test_the_documented_table_is_that_of_the_results() -> None:
    results = json.loads(RESULTS.read_text())
    assert set(results) == {one["id"] for one in ENTRIES}
    assert TABLE.read_text() == table(ENTRIES, results)


@pytest.mark.worlds
@pytest.mark.parametrize("entry", pairs())
def test_a_planted_fault_is_caught_and_placed(entry: Entry, tmp_path: Path) -> None:
    outcome = run(entry, "planted", tmp_path)
    assert mismatches(entry, outcome) == [], outcome.said


@pytest.mark.worlds
@pytest.mark.parametrize("entry", pairs())
def test_its_clean_twin_is_not_blamed(entry: Entry, tmp_path: Path) -> None:
    outcome = run(entry, "clean", tmp_path)
    assert blamed(outcome) == [], outcome.said
