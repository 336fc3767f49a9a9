"""How far two floating-point numbers are apart, in units in the last place."""

import re
from typing import Final

import numpy as np

from ddp_repro.judge.findings import Distance

_SPEC: Final = re.compile(r"(\w+)\[([\d,]*)\]")
_WIDTHS: Final = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


def distance_between(spec: str, a: float, b: float) -> Distance | None:
    """Return the distance of two scalars of ``spec`` (``float32[]``); ``None`` for other types, NaN and infinity."""
    match = _SPEC.match(spec)
    if match is None or match[1] not in _WIDTHS or not (np.isfinite(a) and np.isfinite(b)):
        return None
    return Distance(max_ulp=abs(_ordinal(match[1], a) - _ordinal(match[1], b)), elements=1, of=1)


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
