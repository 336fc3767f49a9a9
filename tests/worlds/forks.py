"""Worlds of the tests' own: a test file, run as a script, forks into the ranks once it has imported everything."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240


def run_world(file: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the test file ``file`` as a script with these arguments to its end, and end what it left behind."""
    module = ".".join(Path(file).resolve().relative_to(ROOT).with_suffix("").parts)
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        _end(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(process: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def be_ranks(size: int, rank_main: Callable[[int], None]) -> list[int]:
    """Be the ranks of a world in forks of this process; return their exit codes."""
    gc.collect()
    gc.freeze()  # or a collection in a rank reads, and so copies, all that was imported
    ranks = []
    for rank in range(size):
        child = os.fork()
        if not child:
            try:
                rank_main(rank)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                raise
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)  # a rank that is through has left by itself
        ranks.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks]
