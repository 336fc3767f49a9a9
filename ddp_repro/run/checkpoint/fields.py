"""The identity under which a checkpoint was saved, and the fields in which a resumed run differs from it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ddp_repro.errors import ReproError

WORLD_SIZE: Final = "experiment.world_size"
_FOLLOWS_WORLD_SIZE: Final = ("experiment.ranks_per_node", "experiment.nodes", "experiment.placement")
_TOLD: Final = frozenset({"provenance", "schema", "rank", "digest"})
_SHOWN: Final = 60


def identity_fields(identity: Mapping[str, Any] | None, world_size: int) -> dict[str, Any]:
    """Return what is compared of an identity by dotted name, the world size always among it; lists are values.

    What an ``identity.json`` only tells (provenance, its rank, its digest) is left out.
    """
    compared = {name: value for name, value in (identity or {}).items() if name not in _TOLD}
    found = {name: value for group, value in compared.items() for name, value in _flat(group, value)}
    return {**found, WORLD_SIZE: world_size}


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key in value:
            yield from _flat(f"{name}.{key}", value[key])
    else:
        yield name, value


def differences(saved: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields that differ, or are on one side only, each with the saved value and the one here."""
    names = dict.fromkeys([*saved, *here])
    found = {
        name: [saved.get(name), here.get(name)]
        for name in names
        if name not in saved or name not in here or _canonical(saved[name]) != _canonical(here[name])
    }
    if WORLD_SIZE in found:
        for name in _FOLLOWS_WORLD_SIZE:
            found.pop(name, None)
    return found


def _canonical(value: Any) -> str:
    """Return a value as text in which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)


def is_allowed(name: str, allow: Sequence[str]) -> bool:
    """Tell whether a field is covered by one of ``allow``: its name, a group of it (``software``), or ``*``.

    What has no name (``""``) is never allowed.
    """
    patterns = [pattern.removesuffix(".*") for pattern in allow]
    return bool(name) and any(pattern in {"*", name} or name.startswith(f"{pattern}.") for pattern in patterns)


def refuse(found: Mapping[str, Sequence[Any]], allow: Sequence[str]) -> None:
    """Raise ``ReproError`` that names the fields in which the run differs and may not."""
    refused = {name: values for name, values in found.items() if not is_allowed(name, allow)}
    if not refused:
        return
    told = ", ".join(f"{name} ({_shown(saved)} saved, {_shown(here)} here)" for name, (saved, here) in refused.items())
    names = ", ".join(repr(name) for name in refused)
    raise ReproError(
        f"the checkpoint is of another run: {told}",
        hint=f"run it as it was saved, or pass allow=[{names}] and do without the same bits",
    )


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
