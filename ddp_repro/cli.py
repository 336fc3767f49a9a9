"""The only place that knows Hydra: composes a command's configuration, maps every ending to an exit code."""

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.errors import ExitCode, ReproError, Verdict
from ddp_repro.overrides import as_meant, how_to_write
from ddp_repro.report.terminal import print_error, print_verdict
from ddp_repro.run.driver import Interrupted, Invocation, catch_signals, refuse_several_drivers

TWINS, CANDIDATE = "twins", "candidate"
_IN_VAIN = "To append to your config use +"  # a key that is added does nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command's name, the dataclass of its configuration, and what it does; the function returns an exit code."""

    name: str
    schema: type[Any]
    run: Callable[[Any, Invocation], ExitCode]


def run_command(command: Command) -> None:
    """Run ``command`` on ``sys.argv`` and exit with 0, 1 or 2 and nothing else."""
    sys.exit(int(_guarded(command)))


def _guarded(command: Command) -> ExitCode:
    try:
        refuse_several_drivers(os.environ)
        catch_signals(os.environ)
        return _compose_and_run(command)
    except ReproError as error:
        print_error(error)
    except Interrupted as stop:
        print_error(ReproError(f"interrupted by {stop.signal_name}; every process of the run was ended."))
    except Exception:  # noqa: BLE001  a crash must end with 2: 1 is kept for a difference that was found
        traceback.print_exc()
    print_verdict(Verdict.NOT_JUDGED)
    return ExitCode.NOT_JUDGED


def _compose_and_run(command: Command) -> ExitCode:
    typed = sys.argv[1:]
    composed = _compose(command, typed)
    twins = tuple(_compose_twins(command, typed, composed))
    compose = partial(_compose_once, command, typed)
    invocation = Invocation(command=command.name, overrides=tuple(typed), twins=twins, compose=compose)
    return worst([command.run(settings, invocation) for settings in composed])


def _compose_twins(command: Command, typed: list[str], composed: list[Any]) -> list[Any]:
    """Return the configurations that ``twins`` or ``candidate`` names: the command's own overrides, then theirs."""
    named = [overrides for settings in composed for overrides in _named(settings)]
    if not named:
        return []
    if len(composed) > 1:
        raise ReproError(
            f"{TWINS} or {CANDIDATE} and -m cannot be combined.", hint="Call it once for each value that -m names."
        )
    shared = [argument for argument in typed if argument.lstrip("+").partition("=")[0] not in (TWINS, CANDIDATE)]
    return [_compose_twin(command, shared, overrides) for overrides in named]


def _named(settings: Any) -> list[list[str]]:
    candidate = getattr(settings, CANDIDATE, [])
    return [candidate] if candidate else getattr(settings, TWINS, [])


def _compose_twin(command: Command, shared: list[str], overrides: list[str]) -> Any:
    what = CANDIDATE if CANDIDATE in command.schema.__dataclass_fields__ else "twin"
    for override in overrides:
        if override.startswith("-") or override.partition("=")[0].lstrip("+") in (TWINS, CANDIDATE):
            raise ReproError(
                f"{override} cannot stand in a {what}.", hint=f"A {what} is a list of overrides: key=value."
            )
    try:
        (settings,) = _compose(command, [*shared, *overrides])
    except ReproError as error:
        raise ReproError(f"the {what} [{', '.join(overrides)}]: {error}", hint=error.hint) from None
    return settings


def _compose_once(command: Command, typed: list[str], more: Sequence[str]) -> Any:
    composed = _compose(command, [*typed, *more])
    if len(composed) != 1:
        raise ReproError(
            f"{command.name} and -m cannot be combined.", hint="Call it once for each value that -m names."
        )
    return composed[0]


def _compose(command: Command, typed: list[str]) -> list[Any]:
    """Return the configurations that Hydra composes: one, several with ``-m``, none with ``--cfg`` or ``--help``.

    Nothing is run inside Hydra, which would print a traceback and exit with 1. Raises ReproError with Hydra's words.
    """
    composed: list[DictConfig] = []

    def task(config: DictConfig) -> None:
        composed.append(config)

    ConfigStore.instance().store(name=f"{command.name}_schema", node=command.schema)
    sys.argv[1:] = as_meant(typed)
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=command.name)(task)()
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise _refusal(told.getvalue(), command, sys.argv[1:]) from None
    return [_settings(command, config) for config in composed]


def _refusal(told: str, command: Command, arguments: list[str]) -> ReproError:
    """Return Hydra's refusal, with the argument that it could not read, where there is one, and how it is written."""
    unknown = told.partition("unrecognized arguments: ")[2].partition("\n")[0]
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("-"):
            is_unreadable = argument in unknown
        else:
            is_unreadable = not before.startswith("-") and _is_unreadable(argument)
        if is_unreadable:
            return ReproError(f"{argument} cannot be read as key=value.", hint=how_to_write(argument))
    return ReproError(in_short(told), hint=_cfg_hint(command))


def _is_unreadable(argument: str) -> bool:
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return True
    return False


def _settings(command: Command, config: DictConfig) -> Any:
    for key in _unknown(config):
        raise ReproError(f"{key} is no key of {command.name}, not even with a plus.", hint=_cfg_hint(command))
    try:
        return OmegaConf.to_object(config)
    except OmegaConfBaseException as error:  # a value that must be given is missing
        raise ReproError(str(error).splitlines()[0], hint=_cfg_hint(command)) from error


def _unknown(config: DictConfig, above: str = "") -> Iterator[str]:
    """Yield the keys that were added where a dataclass has none of that name: they would do nothing."""
    kind = OmegaConf.get_type(config)
    for key in config:
        value = None if OmegaConf.is_missing(config, key) else config[key]
        if is_dataclass(kind) and key not in kind.__dataclass_fields__:
            yield f"{above}{key!s}"
        elif isinstance(value, DictConfig):
            yield from _unknown(value, f"{above}{key!s}.")


def in_short(told: str) -> str:
    """Return Hydra's message without what only helps its own developers."""
    head = told.rpartition("error: ")[2] if told.startswith("usage: ") else told.partition("Config search path")[0]
    lines = [line for line in head.splitlines() if line.strip() and "HYDRA_FULL_ERROR" not in line]
    return "\n".join(line for line in lines if "_type=" not in line and not line.startswith(_IN_VAIN))


def worst(codes: list[ExitCode]) -> ExitCode:
    """Return the code of several runs: a difference found outweighs a run not judged; none (``--cfg``) is 0."""
    order = (ExitCode.DIVERGED, ExitCode.NOT_JUDGED)
    return next((code for code in order if code in codes), ExitCode.REPRODUCIBLE)


def _cfg_hint(command: Command) -> str:
    return f"python -m ddp_repro.{command.name} --cfg job shows every key and its value."
