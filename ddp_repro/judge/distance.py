"""How far two floating-point numbers are apart, in units in the last place."""

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.findings import Distance

_SPEC: Final = re.compile(r"(\w+)\[([\d,]*)\]")
_WIDTHS: Final = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


def distance_between(spec: str, a: float, b: float) -> Distance | None:
    """Return the distance of two scalars of ``spec`` (``float32[]``); ``None`` for other types, NaN and infinity."""
    match = _SPEC.match(spec)
    if match is None or match[1] not in _WIDTHS or not (np.isfinite(a) and np.isfinite(b)):
        return None
    return Distance(max_ulp=abs(_ordinal(match[1], a) - _ordinal(match[1], b)), elements=1, of=1)


def ulps_between(dtype: str, a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the distance of n pairs of numbers of one type, in units in the last place.

    NaN for other types and where either is NaN or infinite. Exact below 2**53, and there is no other one in practice.
    """
    if dtype not in _WIDTHS:
        return np.full(len(a), np.nan)
    both = np.isfinite(a) & np.isfinite(b)
    places = [_places(dtype, np.where(both, values, 0.0)) for values in (a, b)]
    apart = np.where(places[0] > places[1], places[0] - places[1], places[1] - places[0])
    return np.where(both, apart.astype(np.float64), np.nan)


def _places(dtype: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """Return the places of numbers among all numbers of their type, counted from below zero."""
    if dtype == "float64":
        bits = values.view(np.uint64)
    elif dtype == "float16":
        bits = values.astype(np.float16).view(np.uint16).astype(np.uint64)
    else:
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = bits >> np.uint64(16) if dtype == "bfloat16" else bits
    half = np.uint64(1 << (_WIDTHS[dtype] - 1))
    magnitude = bits & (half - np.uint64(1))
    return np.where(bits >= half, half - magnitude, half + magnitude)


def _ordinal(dtype: str, value: float) -> int:
    """Return the place of ``value`` among all numbers of its type; both zeros have place 0."""
    width = _WIDTHS[dtype]
    bits = _bits(dtype, value)
    magnitude = bits & ((1 << (width - 1)) - 1)
    return -magnitude if bits >> (width - 1) else magnitude


def _bits(dtype: str, value: float) -> int:
    if dtype == "float64":
        return int(np.float64(value).view(np.uint64))
    if dtype == "float16":
        return int(np.float16(value).view(np.uint16))
    bits = int(np.float32(value).view(np.uint32))
    return bits if dtype == "float32" else bits >> 16
