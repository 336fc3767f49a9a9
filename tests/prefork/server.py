"""The server: ``python -m tests.prefork.server <fd> <module> …`` forks a command for each request on its socket."""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

from tests.prefork import command

IMPORTED = (
    "torch",
    "torch._dynamo",
    "ddp_repro.cli",
    "ddp_repro.run.launch",
    "ddp_repro.run.rank_launch",
    "scipy.stats",
)


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    for module in (*IMPORTED, *sys.argv[2:]):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # nothing that was imported is a model: a collection in a fork need not read and copy all of it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what pytest's Ctrl-C means for commands, pytest says by closing
    requests.send(b"ready")
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _supervise(json.loads(message), fds)
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _supervise(request: dict[str, Any], fds: list[int]) -> None:
    """Fork the command itself, tell its process id and, at its end, its exit code."""
    out, err, told = fds
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _become(request, out, err)
    os.close(out)
    os.close(err)
    with contextlib.suppress(BrokenPipeError), os.fdopen(told, "w") as pipe:
        print(pid, file=pipe, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=pipe, flush=True)
    os._exit(0)


def _become(request: dict[str, Any], out: int, err: int) -> None:
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        os.setsid()
        if request["host"] is not None:
            _enter(request["host"])
        code = command.run(request["module"], request["arguments"], request["cwd"], request["environ"])
    except BaseException:  # noqa: BLE001  the last frame of a forked process
        traceback.print_exc()
    finally:
        os._exit(code)


def _enter(process: int) -> None:
    """Move to the network, the hostname and the mounts that another process has."""
    for space in ("net", "uts", "mnt"):
        fd = os.open(f"/proc/{process}/ns/{space}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(fd, 0) != 0:
            raise OSError(ctypes.get_errno(), f"the {space} namespace of {process}")
        os.close(fd)


if __name__ == "__main__":
    main()
