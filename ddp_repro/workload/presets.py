"""Options of the built-in workloads: a preset for each size, overridden key by key."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ddp_repro.errors import ReproError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SHARES = ("dropout", "corruption")
_POSITIVE = ("batch_size", "width", "hidden", "depth", "heads", "context", "reach", "lr")
_O = TypeVar("_O", bound="DataclassInstance")


def options_of_size(presets: Mapping[str, _O], size: str, overrides: Mapping[str, Any]) -> _O:
    """Return the preset `size` with `overrides`; an override that is None leaves the preset's value.

    Raises `ReproError` for an unknown size, an unknown option, or a value of another type than the preset's.
    """
    if size not in presets:
        raise ReproError(f"workload.size={size} is not known", hint=f"choose one of {', '.join(presets)}")
    preset = presets[size]
    known = [field.name for field in fields(preset)]
    given = {name: value for name, value in overrides.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            raise ReproError(f"this workload has no option {name}", hint=f"its options are size, {', '.join(known)}")
        given[name] = _of_type(name, value, getattr(preset, name))
    return replace(preset, **given)


def _of_type(name: str, value: Any, default: Any) -> Any:
    expected = type(default)
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise ReproError(
            f"workload.{name}={value!r} is not of type {expected.__name__}", hint=f"try workload.{name}={default!r}"
        )
    if value < 0 or (value == 0 and name in _POSITIVE):
        raise ReproError(f"workload.{name}={value!r} is too small", hint=f"try workload.{name}={default!r}")
    if value >= 1 and name in _SHARES:
        raise ReproError(f"workload.{name}={value!r} is no share of 1", hint=f"try workload.{name}={default!r}")
    return value
