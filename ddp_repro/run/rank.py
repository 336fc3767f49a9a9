"""Entry point of one rank: ``python -m ddp_repro.run.rank <launch folder> <config.yaml>``, started by the launcher."""

import faulthandler
import logging
import signal
import sys
from pathlib import Path

from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.run.driver import end_with_parent
from ddp_repro.run.failure import told
from ddp_repro.run.progress import ProgressPipe

log = logging.getLogger("ddp_repro")
TRACEBACK = 1


def main() -> None:
    """Run this rank, tell the driver how it went, and leave by an explicit exit code."""
    end_with_parent(signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    _log_to_stderr()
    from ddp_repro.run.rank_launch import launch_rank, rank_number  # noqa: PLC0415  after the hooks above: imports torch

    pipe = ProgressPipe(rank_number())
    code = TRACEBACK
    try:
        code = launch_rank(Path(sys.argv[1]), Path(sys.argv[2]), pipe)
    except ReproError as error:
        log.error("%s %s", error, error.hint)  # a user's mistake is told without a traceback
        pipe.send("error", text=str(error), hint=error.hint)
        code = int(ExitCode.NOT_JUDGED)
    except Exception as error:  # the traceback belongs into this rank's log, one line of it to the driver
        log.exception("this rank failed")
        failure = told(error)
        pipe.send("error", text=failure.text, hint=failure.hint)
    from ddp_repro.run.world import exit_now  # noqa: PLC0415

    exit_now(code)


def _log_to_stderr() -> None:
    """Have what this package logs in the rank's log; the root logger stays as it is, for a script to configure."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


if __name__ == "__main__":
    main()
