"""Calls `check` from Python: a process of its own, as a person would start it, and what it came to."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddp_repro.errors import Verdict
from ddp_repro.overrides import quoted

_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_MEANT_OTHERWISE: Final = ("true", "false", "null", "nan", "inf")
_ENDING_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check came to.

    ``report`` is what it printed, ``folder`` its run folder with ``report.html`` and the traces, ``document`` its
    ``verdict.json`` (``None``: it was refused, or crashed, before there was one).
    """

    verdict: Verdict
    report: str
    folder: Path
    document: Mapping[str, Any] | None

    @property
    def golden(self) -> str | None:
        """The state of the golden, where it was held against one."""
        told = self.document.get("golden") if self.document else None
        return str(told["state"]) if told else None


def check_script(
    script: str | Path | None = None,
    *,
    folder: str | Path,
    args: str = "",
    overrides: Sequence[str] = (),
    **keys: Any,
) -> Checked:
    """Check a training script in worlds of ``nproc`` ranks, as ``python -m ddp_repro.check workload=script`` does.

    ``folder`` is the run folder, ``args`` is what the script gets, ``keys`` are keys of the configuration
    (``nproc=2``), ``overrides`` further ones as they are typed (``train.max_steps=10``). Without a script another
    workload is checked: ``workload="digits"``. Never raises on what the check comes to.
    """
    run = Path(folder)
    done = _ran([*_script(script, args), *_written(keys), *overrides, f"output.dir={quoted(str(run))}"])
    return _checked(done, run)


def _script(script: str | Path | None, args: str) -> list[str]:
    named = [] if script is None else ["workload=script", f"workload.path={quoted(str(script))}"]
    return named + ([f"workload.args={quoted(args)}"] if args else [])


def _written(keys: Mapping[str, Any]) -> list[str]:
    return [f"{key}={in_hydra(value)}" for key, value in keys.items()]


def in_hydra(value: Any) -> str:
    """Return a value as it is typed after a key: numbers, truth values, ``None``, texts, and lists of them."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(in_hydra, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    is_plain = not isinstance(value, str) or (_PLAIN.fullmatch(text) and text.lower() not in _MEANT_OTHERWISE)
    return text if is_plain else quoted(text)


def _ran(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run the check to its end; where this process is told to stop, it ends what it started, and is waited for."""
    command = [sys.executable, "-m", "ddp_repro.check", "output.progress=false", *words]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            try:
                process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _checked(done: "subprocess.CompletedProcess[str]", run: Path) -> Checked:
    """Return what a check came to: only where its code, its last line and its document say so, reproducible."""
    document = _document(run / "verdict.json")
    last = done.stdout.rstrip().rpartition("\n")[2]
    verdict = Verdict(last) if last in list(Verdict) else Verdict.NOT_JUDGED
    if done.returncode != verdict.exit_code or document is None or document.get("verdict") != verdict:
        verdict = Verdict.NOT_JUDGED
    # A refusal tells its reason on stderr; beside a report there is nothing but what libraries warn of.
    told = done.stdout if document is not None else f"{done.stderr.rstrip()}\n{done.stdout}"
    return Checked(verdict=verdict, report=told.strip(), folder=run, document=document)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
