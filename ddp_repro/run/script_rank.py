"""What one rank does in one launch of a user's script: run it as ``__main__`` under observation, to whatever end."""

import logging
import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

import ddp_repro
from ddp_repro.config import RecordConfig, Seeding
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.run import determinism
from ddp_repro.run.failure import told
from ddp_repro.run.launch_environment import determinism_of
from ddp_repro.run.progress import ProgressPipe
from ddp_repro.run.provenance import code_provenance
from ddp_repro.run.root_seed import seed_everything
from ddp_repro.run.script_watch import ScriptRank, ScriptWatch
from ddp_repro.trace.layout import LaunchFolder
from ddp_repro.workload.script import read_script, run_as_main

PACKAGE: Final = Path(ddp_repro.__file__).parent

log = logging.getLogger(__name__)


def run_script_rank(folder: LaunchFolder, config: RecordConfig, pipe: ProgressPipe) -> int:
    """Run the script to its end and return the exit code; in a child that it forked as well."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _prepare(config)
    provenance = code_provenance(config) if rank == 0 else {}
    watched = ScriptWatch(
        ScriptRank(folder=folder, config=config, rank=rank, world_size=world_size, pipe=pipe, provenance=provenance)
    )
    watched.attach()
    pipe.send("started")
    where = f"(see {folder.log(rank)})"
    try:
        run_as_main(read_script(config.workload))
        _join_threads()
        watched.finish()
    except ReproError as error:
        log.error("%s %s", error, error.hint)
        watched.fail(str(error), error.hint)
        return int(ExitCode.NOT_JUDGED)
    except SystemExit as stop:
        return _after_exit(stop, watched, where)
    except BaseException as error:  # noqa: BLE001  the interpreter's own last resort, taken here in its place
        shown = error.with_traceback(_of_script(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        failure = told(error)
        watched.fail(failure.text, f"{failure.hint} {where}".strip())
        return 1
    return 0


def _prepare(config: RecordConfig) -> None:
    """Do to this process what was asked for, and nothing else."""
    switches = determinism_of(config)
    determinism.verify_environment(switches, config.threads)
    if determinism.wanted(switches):
        determinism.apply(switches)
    if config.seeding is Seeding.inject:
        seed_everything(config.seed)
    if str(PACKAGE.parent) not in sys.path[1:]:
        sys.path.append(str(PACKAGE.parent))  # sys.path[0], from where this may have come, becomes the script's folder


def _after_exit(stop: SystemExit, watched: ScriptWatch, where: str) -> int:
    """Take ``sys.exit``: 0 is an end like another, everything else a failure of the script."""
    if stop.code is None or stop.code == 0:
        _join_threads()
        try:
            watched.finish()
        except ReproError as error:
            watched.fail(str(error), error.hint)
            return int(ExitCode.NOT_JUDGED)
        return 0
    code = stop.code & 0xFF if isinstance(stop.code, int) else 1
    if not isinstance(stop.code, int):
        sys.stderr.write(f"{stop.code}\n")
    watched.fail(f"the script ended with sys.exit({stop.code!r})", where)
    return code


def _join_threads() -> None:
    """Wait for the threads that the interpreter waits for at its end: one of them may be training."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


def _of_script(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the script's first frame on."""
    ours = ("<frozen runpy>", str(PACKAGE))
    while traceback is not None and traceback.tb_next is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(ours):
            break
        traceback = traceback.tb_next
    return traceback
