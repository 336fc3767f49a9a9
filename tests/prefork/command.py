"""What a forked process does to be the driver, and what its forks do to be ranks."""

import atexit
import logging
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_repro.run import processes, share, start
from ddp_repro.run.environment import THREAD_VARIABLES, moves_bits
from ddp_repro.run.processes import RankCommand

STARTED_IN = dict(os.environ)
PATH = list(sys.path)
# Read when it is needed, or taken over by a fork below.
READ_LATE = (
    *THREAD_VARIABLES,
    "CUBLAS_WORKSPACE_CONFIG",
    "TORCHINDUCTOR_DETERMINISTIC",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(module: str, arguments: Sequence[str], cwd: str, environ: Mapping[str, str]) -> int:
    """Be ``python -m <module> <arguments>`` in ``cwd``, and return the exit code."""
    os.chdir(cwd)
    _take_environment(environ)
    vars(share)["start"] = _start
    return _as_main(module, arguments)


def _start(rank: RankCommand, pass_fds: Sequence[int]) -> "subprocess.Popen[bytes] | Forked":
    """Start a rank: by a fork where it can be what a fresh interpreter would be, otherwise as the product does."""
    unbuffered, *call = list(rank.argv)[1:]
    if (unbuffered, call[0]) != ("-u", "-m") or not _could_be_forked(rank.environ):
        return processes.start(rank, pass_fds)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a progress bar's thread is running
        pid = os.fork()
    if pid:
        return Forked(pid)
    code = 1
    try:
        _leave_the_driver(rank, pass_fds)
        code = _as_main(call[1], call[2:])
    except BaseException:  # noqa: BLE001  the last frame of a forked process
        traceback.print_exc()
    finally:
        os._exit(code)


def _could_be_forked(environ: Mapping[str, str]) -> bool:
    """Return whether nothing that an interpreter or a library reads at its start differs from the server's."""
    names = {name for name in {*STARTED_IN, *environ} if moves_bits(name) and name not in READ_LATE}
    return all(STARTED_IN.get(name) == environ.get(name) for name in names)


def _leave_the_driver(rank: RankCommand, pass_fds: Sequence[int]) -> None:
    import numpy as np  # noqa: PLC0415  imported by the server, not by who only asks what could be forked
    import torch  # noqa: PLC0415
    from torch._inductor import config as inductor  # noqa: PLC0415

    os.setsid()
    log = os.open(rank.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, to in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, to)
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in pass_fds:
            _close(fd)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  unbuffered, as by -u
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    for logger in (logging.getLogger(), logging.getLogger("ddp_repro")):
        logger.handlers.clear()
    _take_environment(rank.environ)
    torch.set_num_threads(int(rank.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    np.random.seed()  # as in a fresh interpreter, where nobody seeded them
    torch.default_generator.seed()
    inductor.deterministic = rank.environ.get("TORCHINDUCTOR_DETERMINISTIC") == "1"


def _take_environment(environ: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)
    vars(start)["environment_at_start"] = lambda: dict(environ)
    for module in ("ddp_repro.run.script_watch",):
        if module in sys.modules:
            vars(sys.modules[module])["environment_at_start"] = lambda: dict(environ)
    added = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [str(Path.cwd()), *added, *[part for part in PATH[1:] if part not in added]]


def _as_main(module: str, arguments: Sequence[str]) -> int:
    sys.argv = [module, *arguments]
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return


class Forked:
    """What the launcher wants of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked rank", timeout)
            time.sleep(0.005)
        return code
