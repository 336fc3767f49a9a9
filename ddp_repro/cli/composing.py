"""Composes the configuration of a command line, of its variants, and of each combination that ``-m`` names."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ddp_repro.cli.command import Command
from ddp_repro.cli.hydra_call import MULTIRUN, call_hydra, cfg_hint, hydra_folder
from ddp_repro.errors import ReproError
from ddp_repro.overrides import as_meant
from ddp_repro.sweep import Job

TWINS, CANDIDATE = "twins", "candidate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """What arguments come to: one job, several with ``-m``, none with ``--cfg`` or ``--help``."""

    jobs: list[Job]
    is_sweep: bool


def compose(command: Command, typed: list[str]) -> Composed:
    """Return the configurations that Hydra composes. Raises ReproError with Hydra's words.

    Nothing is run inside Hydra, which would print a traceback and exit with 1.
    """
    found: list[tuple[tuple[str, ...], RunMode | None, DictConfig]] = []

    def task(config: DictConfig) -> None:
        hydra_config = HydraConfig.get()
        found.append((tuple(hydra_config.overrides.task), hydra_config.mode, config))

    ConfigStore.instance().store(name=f"{command.name}_schema", node=command.schema)
    with tempfile.TemporaryDirectory() as scratch:
        may_sweep = any(word in MULTIRUN or word.lstrip("+").startswith("hydra.mode=") for word in typed)
        place = hydra_folder(scratch) if may_sweep else []
        call_hydra(command, [*as_meant(typed), *place], task)
    return Composed(
        jobs=[
            Job(
                overrides=overrides,
                settings=_settings(command, config),
                compose=partial(compose_more, command, overrides),
            )
            for overrides, _, config in found
        ],
        is_sweep=any(mode is RunMode.MULTIRUN for _, mode, _ in found),
    )


def compose_more(command: Command, typed: Sequence[str], more: Sequence[str]) -> Any:
    """Return the configuration of overrides that come to one job, with further ones that win."""
    (job,) = compose(command, [*typed, *more]).jobs
    return job.settings


def compose_twins(command: Command, typed: list[str], settings: Any) -> list[Any]:
    """Return the configurations that ``twins`` or ``candidate`` names: the command's own overrides, then theirs."""
    shared = [argument for argument in typed if argument.lstrip("+").partition("=")[0] not in (TWINS, CANDIDATE)]
    return [_compose_twin(command, shared, overrides) for overrides in named(settings)]


def named(settings: Any) -> list[list[str]]:
    """Return the lists of overrides that ``candidate`` or ``twins`` holds."""
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
        (job,) = compose(command, [*shared, *overrides]).jobs
    except ReproError as error:
        raise ReproError(f"the {what} [{', '.join(overrides)}]: {error}", hint=error.hint) from None
    return job.settings


def _settings(command: Command, config: DictConfig) -> Any:
    for key in _unknown(config):
        raise ReproError(f"{key} is no key of {command.name}, not even with a plus.", hint=cfg_hint(command))
    try:
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:  # a value that must be given is missing
        raise ReproError(str(error).splitlines()[0], hint=cfg_hint(command)) from error
    try:
        OmegaConf.structured(settings)  # Hydra lets a list of texts hold lists
    except OmegaConfBaseException as error:
        raise ReproError(f"{error.full_key}: {str(error).splitlines()[0]}.", hint=cfg_hint(command)) from error
    return settings


def _unknown(config: DictConfig, above: str = "") -> Iterator[str]:
    """Yield the keys that were added where a dataclass has none of that name: they would do nothing."""
    kind = OmegaConf.get_type(config)
    for key in config:
        value = None if OmegaConf.is_missing(config, key) else config[key]
        if is_dataclass(kind) and key not in kind.__dataclass_fields__:
            yield f"{above}{key!s}"
        elif isinstance(value, DictConfig):
            yield from _unknown(value, f"{above}{key!s}.")
