"""Whether nodes are alike in what can move bits, found out before anything is trained."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ddp_repro.config import RecordConfig
from ddp_repro.errors import ReproError
from ddp_repro.run.environment import numeric_environment
from ddp_repro.run.identity import hardware, software
from ddp_repro.run.launch_environment import launch_environment

_NAMED: Final = 6
_DRIVER: Final = Path("/proc/driver/nvidia/gpus")


def node_identity(config: RecordConfig, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what this node's ranks will have, by the names of the identity's fields, as JSON types."""
    ranks = launch_environment(config, environ)
    return {
        "software": software(),
        "hardware": {**hardware(), "gpus": _gpus()},
        "environment": {"variables": numeric_environment(ranks), "threads": _threads(config, ranks)},
    }


def refuse_unlike(identities: Mapping[str, Mapping[str, Any]], allow: Sequence[str] | None) -> None:
    """Raise ReproError where nodes, by what they are called, differ in a field that ``allow`` does not name.

    ``None``: the command has no such key.
    """
    fields = {node: dict(_flat(identity)) for node, identity in identities.items()}
    names = dict.fromkeys(name for held in fields.values() for name in held)
    differing = {
        name: told
        for name in names
        if not any(_covers(pattern, name) for pattern in allow or ())
        and len(told := _by_value({node: held.get(name) for node, held in fields.items()})) > 1
    }
    if not differing:
        return
    told = [f"{name} is {' and '.join(by_value)}" for name, by_value in differing.items()]
    more = f"; and {len(told) - _NAMED} fields more" if len(told) > _NAMED else ""
    raise ReproError(
        f"the nodes are not alike, and nothing was launched: {'; '.join(told[:_NAMED])}{more}.",
        hint="Use nodes that are alike."
        if allow is None
        else f"Use nodes that are alike, or, if these may differ: 'compare.allow=[{','.join(differing)}]'",
    )


def _by_value(values: Mapping[str, Any]) -> list[str]:
    """Return "1 on node 0 (h1)" for each value, with the nodes that hold it."""
    holding: dict[str, list[str]] = {}
    for node, value in values.items():
        holding.setdefault("unset" if value is None else str(value), []).append(node)
    return [f"{value} on {', '.join(nodes)}" for value, nodes in holding.items()]


def _covers(pattern: str, name: str) -> bool:
    pattern = pattern.removesuffix(".*")
    return name == pattern or name.startswith(f"{pattern}.")


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _threads(config: RecordConfig, ranks: Mapping[str, str]) -> int:
    """Return how many threads torch will use in a rank: as it is told, else one for each processor it may use."""
    told = ranks.get("OMP_NUM_THREADS", "").partition(",")[0]
    if config.threads is not None:
        return config.threads
    return int(told) if told.isdecimal() else len(os.sched_getaffinity(0))


def _gpus() -> list[str]:
    """Return the models of this node's GPUs, without a CUDA context."""
    models = []
    for file in sorted(_DRIVER.glob("*/information")):
        lines = (line.partition(":") for line in file.read_text(errors="replace").splitlines())
        models += [value.strip() for key, _, value in lines if key.strip() == "Model"]
    return models
