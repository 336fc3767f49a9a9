"""Variants of a run that must not differ (twins): which launches are whose, which identity fields each one moves."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ddp_repro.config import CheckConfig, RecordConfig, is_script, semantic
from ddp_repro.errors import ReproError
from ddp_repro.run import determinism
from ddp_repro.run.environment import numeric_environment
from ddp_repro.run.launch_environment import determinism_of, launch_environment

_OUTSIDE_CONFIG: Final = {"seed": ("experiment.seed",), "threads": ("experiment.threads", "environment.threads")}
_SET_BY_SCRIPTS: Final = (
    "experiment.backend",
    "experiment.determinism_in_force",
    "environment.threads",
    "environment.interop_threads",
    "environment.variables",
)
"""What a script may set by its arguments, and what is read back of it at its first step."""

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is launched how often: its configuration and the numbers of its launches.

    ``overrides`` are what it adds to the command's own, ``allow`` the identity fields (dotted) that they move. With
    ``kill_at`` its worlds are killed once so many optimizer steps are done.
    """

    config: RecordConfig
    launches: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    kill_at: int | None = None


def only_variant(config: RecordConfig, launches: int) -> list[Variant]:
    """Return the one variant of a run without twins."""
    return [Variant(config=config, launches=tuple(range(launches)))]


def variants(config: CheckConfig, twins: Sequence[RecordConfig]) -> list[Variant]:
    """Return the variants of a run, numbered one after the other; ``twins`` are composed from ``config.twins``.

    Raises ReproError where a twin changes what twins share.
    """
    each = config.launches_each
    if not config.twins:
        return only_variant(config, each)
    if len(config.twins) < 2:
        raise ReproError(
            "twins names one variant, and there is nothing to hold it against.",
            hint="Name two or more; [] is the run as it is: 'twins=[[],[\"data.num_workers=4\"]]'",
        )
    for overrides, twin in zip(config.twins, twins, strict=True):
        _refuse_shared(config, twin, overrides)
    return [
        Variant(
            config=twin,
            launches=tuple(range(number * each, (number + 1) * each)),
            overrides=tuple(overrides),
            allow=moved_fields(config, twin),
        )
        for number, (overrides, twin) in enumerate(zip(config.twins, twins, strict=True))
    ]


def _refuse_shared(config: CheckConfig, twin: RecordConfig, overrides: Sequence[str]) -> None:
    for key in ("nproc", "level", "output", "launches", "compare", "judge"):
        if getattr(config, key) != getattr(twin, key):
            raise ReproError(
                f"the twin [{', '.join(overrides)}] changes {key}, which twins share.",
                hint="Leave it out of the twin; set it for the whole run.",
            )


def moved_fields(base: RecordConfig, twin: RecordConfig) -> tuple[str, ...]:
    """Return the identity fields (dotted) in which a launch of ``twin`` differs from one of ``base`` by its overrides.

    That is each key that they change, and what is set because of it: switches that are read back, variables, and all
    that a script which is told something else may set itself.
    """
    fields: dict[str, None] = {}
    keys = _differing(dict(_flat(semantic(base))), dict(_flat(semantic(twin))))
    for key in keys:
        fields |= dict.fromkeys(_OUTSIDE_CONFIG.get(key, (f"experiment.config.{key}",)))
    if is_script(twin) and _told(base) != _told(twin):
        fields |= dict.fromkeys(_SET_BY_SCRIPTS)
    switches = [determinism.wanted(determinism_of(config)) for config in (base, twin)]
    fields |= dict.fromkeys(f"experiment.determinism_in_force.{name}" for name in _differing(*switches))
    variables = [numeric_environment(launch_environment(config, os.environ)) for config in (base, twin)]
    fields |= dict.fromkeys(f"environment.variables.{name}" for name in _differing(*variables))
    if is_script(base) and is_script(twin) and base.workload.get("data_id") != twin.workload.get("data_id"):
        fields["experiment.data"] = None
    return tuple(fields)


def _told(config: RecordConfig) -> tuple[Any, ...]:
    """Return what a script can read its settings from, its own file (in whatever folder) among it."""
    return (*(config.workload.get(key) for key in ("path", "module", "args")), dict(config.launcher.env))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [name for name in {**a, **b} if a.get(name, _ABSENT) != b.get(name, _ABSENT)]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
