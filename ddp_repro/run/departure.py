"""The ways out of a script that do not come by its end: it destroys its process group, which can hang, or vanishes."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ddp_repro.run.failure import told


def watch_departure(before: Callable[[str], bool], after: Callable[[], None]) -> None:
    """Call ``before`` on entry to ``destroy_process_group`` of the whole world, and ``after`` on the way out.

    ``before`` gets the exception that is under way, in words, or nothing; where it returns ``False``, ``after`` is not
    called. Replaced before the script is imported, so that the script's own name for it is this one too.
    """
    destroy = distributed_c10d.destroy_process_group

    @functools.wraps(destroy)
    def watched(group: Any = None) -> None:
        whole = group is None or group is dist.group.WORLD
        if not (whole and dist.is_initialized() and before(_exception_under_way())):
            destroy(group)
            return
        try:
            destroy(group)
        finally:
            after()

    dist.destroy_process_group = distributed_c10d.destroy_process_group = watched


def watch_vanishing(before: Callable[[int], None]) -> None:
    """Call ``before`` with the exit code on entry to ``os._exit``, which no exit handler and no ``finally`` sees."""
    vanish = os._exit

    @functools.wraps(vanish)
    def watched(status: int) -> NoReturn:
        before(status)
        vanish(status)

    os._exit = watched


def _exception_under_way() -> str:
    """Return the exception of a ``finally`` or ``except`` that runs now."""
    error = sys.exc_info()[1]
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return ""
    failure = told(error)
    return "; ".join(part for part in (failure.text, failure.hint) if part)
