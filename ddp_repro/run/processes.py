"""Starting and ending whole process trees."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "DDP_REPRO_WORLD"  # every process of a world carries it, whatever it was re-parented to


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCommand:
    """What to start for one rank: arguments, environment and the log that takes stdout and stderr."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    log: Path


def start(command: RankCommand, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a rank in a session of its own, so that its loader workers end with it."""
    with command.log.open("ab") as log:
        return subprocess.Popen(
            list(command.argv),
            env=dict(command.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )


def children() -> frozenset[psutil.Process]:
    """Return the processes whose parent this one is."""
    return frozenset(psutil.Process().children())


def end_world(processes: Iterable[subprocess.Popen[bytes]], mark: str, others: Collection[psutil.Process]) -> None:
    """Kill every rank with its process group, then all that is left of the world, and reap it.

    What is left carries the world's ``mark``, or was re-parented to this process, which adopts orphans: a child in a
    session of its own whose environment was cleared is found only so. ``others`` are children that are not the world's.
    """
    ranks = list(processes)
    kill(ranks)
    _reap(ranks)  # their orphans are re-parented by then
    deadline = time.monotonic() + 10.0
    while (left := [*marked(mark), *_descendants(others)]) and time.monotonic() < deadline:
        for other in left:
            with contextlib.suppress(psutil.Error):
                other.kill()
        _reap(ranks)
        reap_orphans([*(process.pid for process in ranks), *(other.pid for other in others)])
        time.sleep(0.02)


def _descendants(others: Collection[psutil.Process]) -> list[psutil.Process]:
    """Return the children of this process but for ``others``, each with all that descends from it."""
    found: list[psutil.Process] = []
    for child in children() - frozenset(others):
        with contextlib.suppress(psutil.Error):
            found += [child, *child.children(recursive=True)]
    return found


def reap_orphans(known: Collection[int]) -> None:
    """Take leave of adopted processes that ended; children in ``known`` are left to those who wait for them."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in known:
                return
            os.waitpid(ended.si_pid, 0)


def kill(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill every rank with its process group."""
    for process in processes:
        _kill_group(process.pid)


def marked(mark: str) -> list[psutil.Process]:
    """Return the live processes of this user that carry ``mark`` in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_marked = process.pid != os.getpid() and process.environ().get(MARK) == mark
            if is_marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _reap(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)


def exit_text(code: int | None) -> str:
    """Return an exit code in words: ``exit code 3``, ``killed by SIGKILL``."""
    if code is None:
        return "still running"
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
