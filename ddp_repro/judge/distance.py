"""How far two tensors of one type are apart: in bits, in units in the last place, in numbers."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ddp_repro.judge.findings import Distance, Element
from ddp_repro.trace.tensors import Stored

Bits = npt.NDArray[Any]
"""Unsigned integers that hold the bits of n elements."""

_SPEC: Final = re.compile(r"(\w+)\[([\d,]*)\]")
_TOLD: Final = 5  # elements that are told one by one
_POWERS: Final = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A type of elements: the bits of one, and what they are read as (for bfloat16, as float32 with zeros added)."""

    bits: str
    read_as: str
    is_float: bool = True
    exponent: int = 0


_KINDS: Final = {
    "F64": _Kind(bits="u8", read_as="f8", exponent=0x7FF0000000000000),
    "F32": _Kind(bits="u4", read_as="f4", exponent=0x7F800000),
    "F16": _Kind(bits="u2", read_as="f2", exponent=0x7C00),
    "BF16": _Kind(bits="u2", read_as="f4", exponent=0x7F80),
    "I64": _Kind(bits="u8", read_as="i8", is_float=False),
    "I32": _Kind(bits="u4", read_as="i4", is_float=False),
    "I16": _Kind(bits="u2", read_as="i2", is_float=False),
    "I8": _Kind(bits="u1", read_as="i1", is_float=False),
    "U8": _Kind(bits="u1", read_as="u1", is_float=False),
    "BOOL": _Kind(bits="u1", read_as="u1", is_float=False),
}
_OF_SPECS: Final = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def distance_between(spec: str, a: float, b: float) -> Distance | None:
    """Return the distance of two scalars of ``spec`` (``float32[]``); ``None`` for other types and equal bits."""
    match = _SPEC.match(spec)
    if match is None or match[1] not in _OF_SPECS:
        return None
    dtype = _OF_SPECS[match[1]]
    return distance_of(*(Stored(dtype=dtype, shape=(), data=_scalar(dtype, value)) for value in (a, b)))


def ulps_between(dtype: str, a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the distance of n pairs of numbers of one type, in units in the last place.

    NaN for other types and where either is NaN or infinite. Exact below 2**53, and there is no other one in practice.
    """
    if dtype not in _OF_SPECS:
        return np.full(len(a), np.nan)
    stored = _OF_SPECS[dtype]
    both = np.isfinite(a) & np.isfinite(b)
    bits = (np.frombuffer(_scalars(stored, np.where(both, one, 0.0)), f"<{_KINDS[stored].bits}") for one in (a, b))
    return np.where(both, _ulps(_KINDS[stored], *bits).astype(np.float64), np.nan)


def _scalar(dtype: str, value: float) -> bytes:
    return _scalars(dtype, np.array([value]))


def _scalars(dtype: str, values: npt.NDArray[np.float64]) -> bytes:
    """Return the bytes of n numbers as their type stores them."""
    stored = values.astype(f"<{_KINDS[dtype].read_as}")
    return (stored.view(np.uint32) >> 16).astype("<u2").tobytes() if dtype == "BF16" else stored.tobytes()


def distance_of(a: Stored, b: Stored) -> Distance | None:
    """Return the distance of two tensors; ``None`` where they are equal in bits, or of other types or shapes."""
    kind = _KINDS.get(a.dtype)
    if kind is None or (a.dtype, a.shape) != (b.dtype, b.shape):
        return None
    bits_a, bits_b = (np.frombuffer(one.data, f"<{kind.bits}") for one in (a, b))
    places = np.flatnonzero(bits_a != bits_b)
    if not len(places):
        return None
    one, other = bits_a[places], bits_b[places]
    ulps = _ulps(kind, one, other)
    values = _values(kind, one), _values(kind, other)
    apart, relative = _numbers(kind, *values)
    return Distance(
        max_ulp=int(ulps.max()) if len(ulps) else None,
        median_ulp=int(np.sort(ulps)[(len(ulps) - 1) // 2]) if len(ulps) else None,
        elements=len(places),
        of=len(bits_a),
        max_abs=apart,
        max_rel=relative,
        nans=len(places) - len(ulps),
        first=tuple(_element(a, kind, (bits_a, bits_b), int(place)) for place in places[:_TOLD]),
        by_ulp=tuple(np.bincount(np.searchsorted(_POWERS, ulps, side="right")).tolist()) if len(ulps) else (),
    )


def _ulps(kind: _Kind, a: Bits, b: Bits) -> Bits:
    """Return how many steps of ``nextafter`` lie between each pair (uint64); pairs with a NaN are left out."""
    if not kind.is_float:
        return _steps(*(_integers(kind, one) for one in (a, b)))
    sign = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
    size_a, size_b = (a & ~sign).astype(np.uint64), (b & ~sign).astype(np.uint64)
    numbers = (size_a <= kind.exponent) & (size_b <= kind.exponent)
    alike = (a & sign) == (b & sign)
    between = np.where(alike, np.maximum(size_a, size_b) - np.minimum(size_a, size_b), size_a + size_b)
    kept: Bits = between[numbers]
    return kept


def _integers(kind: _Kind, bits: Bits) -> Bits:
    read: Bits = bits.view(f"<{kind.read_as}")
    return read


def _steps(a: Bits, b: Bits) -> Bits:
    """Return the differences of integers, which wrap around to the right number of 64 bits."""
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    steps: Bits = larger.astype(np.uint64) - smaller.astype(np.uint64)
    return steps


def _values(kind: _Kind, bits: Bits) -> Bits:
    if kind.is_float and np.dtype(kind.bits).itemsize < np.dtype(kind.read_as).itemsize:
        bits = bits.astype(np.uint32) << 16
    read: Bits = bits.view(f"<{kind.read_as}")
    return read


def _numbers(kind: _Kind, a: Bits, b: Bits) -> tuple[float | None, float | None]:
    """Return the largest absolute and relative difference over pairs of finite numbers."""
    one, other = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(one) & np.isfinite(other)
    one, other = one[finite], other[finite]
    if not kind.is_float or not len(one):
        return None, None
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        apart = np.abs(one - other)
        relative = apart / np.maximum(np.abs(one), np.abs(other))
    largest, share = float(apart.max()), float(np.nan_to_num(relative, nan=0.0).max())
    return largest if np.isfinite(largest) else None, share if np.isfinite(share) else None


def _element(stored: Stored, kind: _Kind, bits: tuple[Bits, Bits], place: int) -> Element:
    pairs = [one[place : place + 1] for one in bits]
    width = 2 * np.dtype(kind.bits).itemsize
    values = [_values(kind, one)[0] for one in pairs]
    return Element(
        index=tuple(int(number) for number in np.unravel_index(place, stored.shape)) if stored.shape else (),
        values=(_told(values[0]), _told(values[1])),
        bits=(f"0x{int(pairs[0][0]):0{width}x}", f"0x{int(pairs[1][0]):0{width}x}"),
    )


def _told(value: Any) -> str:
    """Return a number with as many digits as tell it from its neighbours."""
    return str(value)
