"""Calls Hydra, which would print tracebacks and exit with 1: its refusals become errors that say what to do."""

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from ddp_repro.cli.command import Command
from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.errors import ReproError
from ddp_repro.overrides import how_to_write, quoted

MULTIRUN = ("-m", "--multirun")
_LIST = "It takes a list, in brackets: seeds=[1,2]. With -m a comma outside of brackets makes several runs."
_IN_VAIN = "To append to your config use +"  # a key that is added does nothing


def hydra_folder(folder: str) -> list[str]:
    """Return what has Hydra write what it writes of a sweep into a folder, and not beside the user's files."""
    return [f"hydra.sweep.dir={quoted(folder)}"]


def call_hydra(command: Command, arguments: list[str], task: Callable[[DictConfig], Any]) -> None:
    """Have Hydra compose the arguments and call ``task`` with each configuration; raises ReproError with its words."""
    flags = [argument for argument in arguments if argument in MULTIRUN]  # Hydra reads no flag between overrides
    sys.argv[1:] = [*flags, *(argument for argument in arguments if argument not in MULTIRUN)]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=command.name)(task)()
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise _refusal(told.getvalue(), command, arguments) from None
    except ValueError as error:  # of Hydra's own options, two that exclude each other
        raise ReproError(str(error), hint=cfg_hint(command)) from None


def _refusal(told: str, command: Command, arguments: list[str]) -> ReproError:
    """Return Hydra's refusal, with the argument that it could not read, where there is one, and how it is written."""
    unknown = told.partition("unrecognized arguments: ")[2].partition("\n")[0]
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("-"):
            is_unreadable = argument in unknown
        else:
            is_unreadable = not before.startswith("-") and _is_unreadable(argument)
        if is_unreadable:
            typed = argument.removeprefix("++")  # which a person need not type
            return ReproError(f"{typed} cannot be read as key=value.", hint=how_to_write(typed))
    is_list = "is not a ListConfig" in told
    return ReproError(in_short(told), hint=_LIST if is_list else cfg_hint(command))


def _is_unreadable(argument: str) -> bool:
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return True
    return False


def in_short(told: str) -> str:
    """Return Hydra's message without what only helps its own developers."""
    head = told.rpartition("error: ")[2] if told.startswith("usage: ") else told.partition("Config search path")[0]
    lines = [line for line in head.splitlines() if line.strip() and "HYDRA_FULL_ERROR" not in line]
    return "\n".join(line for line in lines if "_type=" not in line and not line.startswith(_IN_VAIN))


def cfg_hint(command: Command) -> str:
    """Return what shows a command's keys."""
    return f"python -m ddp_repro.{command.name} --cfg job shows every key and its value."
