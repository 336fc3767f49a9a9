"""Runs a command of the product as a person would: in a process of its own, from a folder of its own.

Unless ``real=True`` says otherwise, that process and its ranks are forks of one that has imported everything
(`tests.prefork`): the same code, a third of the time.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.prefork import client

PLANTED = Path(__file__).parent / "faults"
TINY = ("workload.size=tiny", "train.max_steps=4")


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended; ``verdict`` is its verdict.json, where it wrote one."""

    code: int
    stdout: str
    stderr: str
    verdict: dict[str, Any] | None

    @property
    def last_line(self) -> str:
        return self.stdout.splitlines()[-1] if self.stdout else ""

    def assert_short_refusal(self) -> None:
        """Assert what a person gets for a mistake: code 2, few words, no traceback."""
        assert self.code == 2, self.stdout + self.stderr
        assert self.last_line == "NOT_JUDGED"
        assert "Traceback" not in self.stdout + self.stderr
        assert len((self.stdout + self.stderr).splitlines()) <= 25


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with the planted workloads importable."""
    path = os.pathsep.join(part for part in (str(PLANTED), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "PYTHONPATH": path, **(extra or {})}


def arguments(command: str, overrides: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"ddp_repro.{command}", *overrides]


def run(
    command: str,
    *overrides: str,
    cwd: Path,
    extra: Mapping[str, str] | None = None,
    timeout_s: float = 240,
    real: bool = False,
    imported: tuple[str, ...] = (),
) -> Done:
    """Run ``command``; where ``output.dir`` is among the overrides, its verdict is read.

    ``imported`` are slow modules that its forks need not import again: they were then imported before observing began.
    """
    words, environ = [command, *overrides], environment(extra)
    done = call(words, cwd=cwd, environ=environ, timeout_s=timeout_s, real=real, imported=imported)
    return Done(code=done.returncode, stdout=done.stdout, stderr=done.stderr, verdict=read_verdict(cwd, overrides))


def call(
    words: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    timeout_s: float = 240,
    real: bool = False,
    imported: tuple[str, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run what a person would type after ``python -m ddp_repro.``, to its end.

    Unless the words say so there is no second look: it launches up to eight worlds more, to name an operator.
    """
    if words[0] == "check" and not any("second_look=" in word or word.startswith("-") for word in words):
        words = [*words, "second_look=false"]
    if real:
        command = arguments(words[0], words[1:])
        return subprocess.run(
            command, cwd=cwd, env=dict(environ), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    hash_seed = None if any(word.startswith("workload=script") for word in words) else "0"
    line = [f"ddp_repro.{words[0]}", *words[1:]]
    return client.run(line, cwd=cwd, environ=environ, timeout_s=timeout_s, hash_seed=hash_seed, imported=imported)


def read_verdict(cwd: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
    named = [override.partition("=")[2] for override in overrides if override.startswith("output.dir=")]
    file = cwd / named[-1] / "verdict.json" if named else None
    return json.loads(file.read_text()) if file is not None and file.is_file() else None
