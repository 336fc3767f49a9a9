"""How this interpreter was started: the environment that it began with, its hash seed and its threads."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ddp_repro.errors import ReproError

_STARTED_WITH = Path("/proc/self/environ")


def environment_at_start() -> dict[str, str]:
    """Return the variables that the interpreter started with, whatever ``os.environ`` was told since."""
    try:
        entries = _STARTED_WITH.read_bytes().split(b"\0")
    except OSError:  # no /proc here: what os.environ says is the best that there is
        return dict(os.environ)
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def hash_seed_in_force() -> int | str:
    """Return the seed of Python's string hashes, or ``"random"``."""
    if not sys.flags.hash_randomization:
        return 0
    seed = "" if sys.flags.ignore_environment else environment_at_start().get("PYTHONHASHSEED", "")
    return int(seed) if seed.isdecimal() else "random"


def verify(variables: Mapping[str, str], threads: int | None) -> None:
    """Raise `ReproError` unless the interpreter started with `variables` and torch uses `threads` threads."""
    started = environment_at_start()
    wrong = [
        f"{name} is {started.get(name, 'not set')}" for name, value in variables.items() if started.get(name) != value
    ]
    seed = variables.get("PYTHONHASHSEED")
    if not wrong and seed is not None and hash_seed_in_force() != int(seed):
        wrong.append("Python was told to ignore PYTHONHASHSEED (-E or -I)")
    if threads is not None:
        wrong += _other_threads(threads)
    if wrong:
        needed = " ".join(f"{name}={value}" for name, value in variables.items())
        raise ReproError(
            f"the environment of this rank is not the one that the run asks for: {', '.join(wrong)}",
            hint=f"start ranks through ddp_repro, or set {needed} before Python starts",
        )


def _other_threads(threads: int) -> list[str]:
    import torch  # noqa: PLC0415 - the rest of this module is read by what starts in milliseconds

    return [] if torch.get_num_threads() == threads else [f"torch uses {torch.get_num_threads()} threads"]
