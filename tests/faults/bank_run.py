"""Runs scripts of the fault bank through the product, as a person would, and says what is not as expected.

``bank.yaml`` beside the scripts says how each pair is run and what must be said of it.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.command import call

BANK: Final = Path(__file__).parent / "bank"
EXIT_CODES: Final = {"REPRODUCIBLE": 0, "DIVERGED": 1, "NOT_JUDGED": 2}
RANKS: Final = 3  # two hide faults of reduction order
TIMEOUT_S: Final = 400
RESUME_ARGS: Final = {"save_args": "--save {checkpoint} --stop-after {step}", "load_args": "--resume {checkpoint}"}
_PLACE: Final = ("step", "ranks", "phase")

Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a check, or a resume, of one script ended; ``document`` is its verdict.json, ``seconds`` its wall time.

    Where the command was refused before anything was launched, the document holds what was printed.
    """

    code: int
    document: dict[str, Any]
    stdout: str
    seconds: float

    @property
    def verdict(self) -> str:
        return str(self.document["verdict"])

    @property
    def said(self) -> str:
        """What was said, in a few lines: for a test that fails."""
        keys = ("witness", "severity", "cause", "step", "ranks", "phase", "name", "message")
        found = [", ".join(f"{key}={finding[key]}" for key in keys) for finding in self.document["findings"]]
        return "\n".join([self.verdict, *self.document["problems"], *found])


def entries() -> list[Entry]:
    """Return what ``bank.yaml`` says of each pair."""
    read: list[Entry] = yaml.safe_load((BANK / "bank.yaml").read_text())
    return read


def run(entry: Entry, which: str, folder: Path) -> Outcome:
    """Run the ``planted`` or the ``clean`` script of a pair; ``folder`` gets the run and is where it is started.

    Where the entry says so, the planted one is recorded several times instead, and the records are compared.
    """
    began = time.monotonic()
    records = entry.get("records", []) if which == "planted" else []
    for number, overrides in enumerate(records):
        done = _started(entry, ["record", *_of_script(entry, which), *overrides, f"output.dir=record-{number}"], folder)
        assert done.returncode == 0, done.stdout + done.stderr
    runs = ",".join(f"record-{number}" for number in range(len(records)))
    command = entry.get("command", "check")
    asked = (
        ["compare", f"runs=[{runs}]"] if records else [command, *_of_script(entry, which), *_overrides(entry, which)]
    )
    done = _started(entry, [*asked, "output.dir=run"], folder)
    written = folder / "run" / "verdict.json"
    told = done.stdout.splitlines()[-1] if done.stdout else ""
    refused = {"verdict": told, "problems": [done.stderr], "findings": []}
    document = json.loads(written.read_text()) if written.is_file() else refused
    assert told == document["verdict"], done.stdout + done.stderr
    return Outcome(code=done.returncode, document=document, stdout=done.stdout, seconds=time.monotonic() - began)


def _started(entry: Entry, asked: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what a person would type; where hash seeds are what it is about, in interpreters of their own."""
    environ, real = _environment(entry.get("environment", {})), bool(entry.get("real"))
    return call(asked, cwd=folder, environ=environ, timeout_s=TIMEOUT_S, real=real)


def _of_script(entry: Entry, which: str) -> list[str]:
    arguments = [f"workload.args='{entry['args']}'"] if entry.get("args") else []
    world = [] if which == "planted" and "records" in entry else [f"nproc={entry.get('nproc', RANKS)}"]
    return ["workload=script", f"workload.path={BANK / entry['id']}_{which}.py", *world, *arguments]


def _overrides(entry: Entry, which: str) -> list[str]:
    overrides = entry.get("overrides", [])
    if which == "clean":
        overrides = entry.get("clean_overrides", overrides)
    if entry.get("command") == "resume":
        overrides = [*(f'resume.{key}="{entry.get(key, told)}"' for key, told in RESUME_ARGS.items()), *overrides]
    return [override.strip() for override in overrides]


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    environ = {**os.environ, **{name: str(value) for name, value in changes.items() if value is not None}}
    return {name: value for name, value in environ.items() if changes.get(name, value) is not None}


def is_caught(entry: Entry, outcome: Outcome) -> bool:
    """Return whether the verdict is right and the right witness saw the right cause, wherever it placed it."""
    return not _of_verdict(entry, outcome) and any(not _of_kind(entry, found) for found in outcome.document["findings"])


def mismatches(entry: Entry, outcome: Outcome) -> list[str]:
    """Return where a planted script's outcome is not as expected; empty where the fault is caught and placed exactly.

    The first finding of the expected severity counts: it is the one that a person reads.
    """
    wrong = _of_verdict(entry, outcome)
    expected = entry["expect"]
    severity = expected.get("severity", "error")
    if "witness" not in expected:
        return wrong + [f"found {one['cause']}" for one in outcome.document["findings"] if one["severity"] == "error"]
    found = next((one for one in outcome.document["findings"] if one["severity"] == severity), None)
    if found is None:
        return [*wrong, f"no finding of severity {severity}"]
    return [*wrong, *_of_kind(entry, found), *_of_place(entry, found)]


def blamed(outcome: Outcome) -> list[str]:
    """Return what is said against a clean script; empty where it passes."""
    wrong = [] if outcome.verdict == "REPRODUCIBLE" else [f"verdict {outcome.verdict}"]
    return wrong + [f"found {one['cause']}" for one in outcome.document["findings"] if one["severity"] == "error"]


def _of_verdict(entry: Entry, outcome: Outcome) -> list[str]:
    expected = entry["expect"]["verdict"]
    wrong = [] if outcome.verdict == expected else [f"verdict {outcome.verdict}, not {expected}"]
    return wrong if outcome.code == EXIT_CODES.get(outcome.verdict) else [*wrong, f"exit code {outcome.code}"]


def _of_kind(entry: Entry, found: Mapping[str, Any]) -> list[str]:
    keys = [key for key in ("witness", "cause") if key in entry["expect"]]
    return _differing(entry["expect"], found, keys)


def _of_place(entry: Entry, found: Mapping[str, Any]) -> list[str]:
    expected = entry["expect"]
    wrong = _differing(expected, found, [key for key in _PLACE if key in expected])
    name = expected.get("name")
    if name is not None and not _is_called(str(found["name"]), name):
        wrong.append(f"name {found['name']}, not {name}")
    if "names" in expected and set(found["names"]) != set(expected["names"]):
        wrong.append(f"names {found['names']}, not {expected['names']}")
    missing = [text for text in expected.get("mentions", []) if text not in found["message"]]
    return wrong + [f"the message does not mention {text!r}: {found['message']}" for text in missing]


def _differing(expected: Mapping[str, Any], found: Mapping[str, Any], keys: list[str]) -> list[str]:
    return [f"{key} {found[key]}, not {expected[key]}" for key in keys if found[key] != expected[key]]


def _is_called(name: str, expected: str) -> bool:
    """Return whether a name is the expected one; a ``*`` at either end stands for any text."""
    if expected.startswith("*"):
        return name.endswith(expected[1:])
    return name.startswith(expected[:-1]) if expected.endswith("*") else name == expected
