"""Asks the server for a command, and waits for it."""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Read by libraries at their start. Threads that spin while they wait take the cores from other tests, and nothing else.
FIXED = {"OMP_WAIT_POLICY": "PASSIVE"}
CONSTRUCTED = {"MKL_DYNAMIC": "FALSE", "OMP_DYNAMIC": "FALSE"}  # what the product sets for built-in workloads


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    timeout_s: float,
    hash_seed: str | None,
    imported: tuple[str, ...] = (),
    host: int | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m <arguments>`` to its end in a fork of the server that has this ``PYTHONHASHSEED``.

    That server has ``imported`` these modules as well. With ``host`` it runs in the namespaces of that process.

    Raises `subprocess.TimeoutExpired` after it was ended with what it had started.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        told, tell = os.pipe()
        request: dict[str, object] = {
            "module": arguments[0],
            "arguments": arguments[1:],
            "cwd": str(cwd),
            "environ": dict(environ),
        }
        request["host"] = host
        socket.send_fds(server(hash_seed, imported), [json.dumps(request).encode()], [out.fileno(), err.fileno(), tell])
        os.close(tell)
        code = _wait(told, timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())


def _wait(told: int, timeout_s: float) -> int:
    with os.fdopen(told) as pipe:
        pid = int(pipe.readline())
        os.set_blocking(pipe.fileno(), False)
        deadline = time.monotonic() + timeout_s
        while not (line := pipe.readline()):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGTERM)
                raise subprocess.TimeoutExpired("a forked command", timeout_s)
            time.sleep(0.01)
        return int(line)


@functools.cache
def server(hash_seed: str | None, imported: tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    seed = {} if hash_seed is None else {"PYTHONHASHSEED": hash_seed, **CONSTRUCTED}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.prefork.server", str(theirs.fileno()), *imported],
        cwd=ROOT,
        env={**environ, **FIXED, **seed},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    atexit.register(_stop, ours, process)
    assert ours.recv(16) == b"ready"
    return ours


def _stop(ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    ours.close()
    process.wait(timeout=10)
