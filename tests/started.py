"""A command that is started and not waited for, and the processes that it has by then."""

import os
import subprocess
import time
from pathlib import Path

import psutil

from tests.command import Done, arguments, environment, read_verdict


def started(folder: Path, command: str, *overrides: str) -> "subprocess.Popen[str]":
    """Start a command in ``folder``, by which its processes are known."""
    return subprocess.Popen(
        arguments(command, overrides),
        cwd=folder,
        env=environment({"TMPDIR": str(folder)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(folder: Path) -> list[psutil.Process]:
    """Return the live processes of what was started in ``folder``, ranks and loader workers included."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get("TMPDIR") == str(folder)
            if marked and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def ended(process: "subprocess.Popen[str]", folder: Path, timeout_s: float = 60) -> Done:
    """Wait for its end, and return how it ended, with the verdict in ``run``."""
    stdout, stderr = process.communicate(timeout=timeout_s)
    verdict = read_verdict(folder, ["output.dir=run"])
    return Done(code=process.returncode, stdout=stdout, stderr=stderr, verdict=verdict)


def assert_nothing_runs(folder: Path) -> None:
    """Assert that none of its processes is left, or will be shortly."""
    deadline = time.monotonic() + 10
    while running(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running(folder) == []
