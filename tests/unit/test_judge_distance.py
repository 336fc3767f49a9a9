import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ddp_repro.judge.distance import distance_between, distance_of
from ddp_repro.judge.findings import Distance
from ddp_repro.trace.tensors import Stored

TYPES: dict[str, Any] = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
WORDS = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
ANY32 = st.floats(width=32, allow_nan=False)


def stored(values: Any, dtype: str = "F32") -> Stored:
    array = np.asarray(values, TYPES.get(dtype))
    return Stored(dtype=dtype, shape=array.shape, data=array.tobytes())


def apart(a: Any, b: Any, dtype: str = "F32") -> Distance:
    found = distance_of(stored(a, dtype), stored(b, dtype))
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "dtype"), WORDS.items())
@pytest.mark.parametrize("start", [0.0, -0.0, 1.0, -1.0, 1.9999999, 5e-8, -6e4, 65504.0])
@pytest.mark.parametrize("towards", [math.inf, -math.inf])
def test_counts_the_steps_that_nextafter_takes(name: str, dtype: type, start: float, towards: float) -> None:
    value = moved = dtype(start)
    for steps in range(1, 6):
        before = moved
        moved = np.nextafter(moved, dtype(towards))
        if moved == before:
            break
        found = distance_between(f"{name}[]", float(value), float(moved))
        assert found is not None
        assert found.max_ulp == steps


@given(st.data(), st.sampled_from(sorted(TYPES)), st.integers(0, 40))
def test_a_walk_by_nextafter_is_as_long_as_its_distance(data: st.DataObject, dtype: str, steps: int) -> None:
    kind = TYPES[dtype]
    start = data.draw(arrays.arrays(kind, 3, elements={"allow_nan": False}))
    towards = data.draw(st.sampled_from([-np.inf, np.inf, 0.0]))
    moved, counts = start.copy(), np.zeros(3, np.int64)
    for _ in range(steps):
        after = np.nextafter(moved, kind(towards))
        counts += after != moved
        moved = after
    found = distance_of(stored(start, dtype), stored(moved, dtype))
    assert (found.max_ulp if found else 0) == counts.max()
    if found is not None:
        differing = np.sort(counts[start.view(f"u{kind().itemsize}") != moved.view(f"u{kind().itemsize}")])
        assert found.median_ulp == differing[(len(differing) - 1) // 2]
        bits = [int(one).bit_length() for one in differing]
        assert list(found.by_ulp) == [bits.count(number) for number in range(max(bits) + 1)]


@given(st.integers(0, 0x7F80), st.integers(0, 0x7F80), st.booleans(), st.booleans())
def test_bfloat16_numbers_are_neighbours_where_their_bits_are(a: int, b: int, flip_a: bool, flip_b: bool) -> None:
    one, other = (Stored(dtype="BF16", shape=(), data=int(bits | flip << 15).to_bytes(2, "little"))
                  for bits, flip in ((a, flip_a), (b, flip_b)))  # fmt: skip
    found = distance_of(one, other)
    signed = [-bits if flip else bits for bits, flip in ((a, flip_a), (b, flip_b))]
    assert (found.max_ulp if found else 0) == abs(signed[0] - signed[1])


def test_bfloat16_has_eight_bits_of_mantissa() -> None:
    found = distance_between("bfloat16[]", 1.0, 1.0 + 2**-7)
    assert found is not None
    assert found.max_ulp == 1
    assert found.first[0].bits == ("0x3f80", "0x3f81")


@given(ANY32, ANY32)
def test_is_symmetric_and_zero_only_for_equal_values(a: float, b: float) -> None:
    there, back = distance_between("float32[]", a, b), distance_between("float32[]", b, a)
    assert (there is None) == (back is None) == (np.float32(a).tobytes() == np.float32(b).tobytes())
    if there is not None and back is not None:
        assert there.max_ulp == back.max_ulp
        assert (there.max_ulp == 0) == (a == b)


def test_zeros_of_either_sign_are_no_step_apart_and_still_differ() -> None:
    found = apart([0.0, 1.0], [-0.0, 1.0])
    assert (found.max_ulp, found.elements, found.of) == (0, 1, 2)
    assert found.first[0].bits == ("0x00000000", "0x80000000")


def test_infinity_is_one_step_beyond_the_largest_number() -> None:
    largest = float(np.finfo(np.float32).max)
    assert apart([largest], [np.inf]).max_ulp == 1
    assert apart([-np.inf], [np.inf]).max_ulp == 2 * 0x7F800000
    assert apart([1.0], [np.inf]).max_abs is None


def test_a_nan_has_no_distance_and_is_counted() -> None:
    found = apart([math.nan, 1.0, 2.0], [1.0, np.nextafter(np.float32(1), np.float32(2)), math.nan])
    assert (found.max_ulp, found.median_ulp, found.nans, found.elements) == (1, 1, 2, 3)
    assert found.by_ulp == (0, 1)
    assert apart([math.nan], [1.0]).max_ulp is None


def test_payloads_of_nans_are_told_apart() -> None:
    one, other = (Stored(dtype="F32", shape=(), data=bits.to_bytes(4, "little")) for bits in (0x7FC00000, 0x7FC00001))
    found = distance_of(one, other)
    assert found is not None
    assert (found.nans, found.max_ulp) == (1, None)


def test_tells_the_first_elements_where_they_stand_and_how_far_numbers_are_apart() -> None:
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[1, 2] += np.float32(0.5)
    found = apart(a, b)
    assert found.first[0].index == (1, 2)
    assert found.first[0].values == ("1.0", "1.5")
    assert found.max_abs == 0.5
    assert found.max_rel == pytest.approx(1 / 3)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_apart_by_their_difference(a: int, b: int) -> None:
    one, other = (Stored(dtype="I64", shape=(), data=value.to_bytes(8, "little", signed=True)) for value in (a, b))
    found = distance_of(one, other)
    assert (found.max_ulp if found else 0) == abs(a - b)


@pytest.mark.parametrize(("spec", "a", "b"), [("int64[]", 1, 2), ("state", 1, 2), ("complex64[]", 1, 2)])
def test_says_nothing_where_there_is_no_distance(spec: str, a: float, b: float) -> None:
    assert distance_between(spec, a, b) is None


def test_other_shapes_and_types_have_no_distance() -> None:
    assert distance_of(stored([1.0]), stored([1.0, 2.0])) is None
    assert distance_of(stored([1.0]), stored([1.0], "F64")) is None
