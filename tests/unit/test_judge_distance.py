import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_repro.judge.distance import distance_between

FINITE32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(("name", "dtype"), [("float64", np.float64), ("float32", np.float32), ("float16", np.float16)])
@pytest.mark.parametrize("start", [0.0, 1.0, -1.0, 1.9999999, 5e-8, -6e4])
@pytest.mark.parametrize("towards", [math.inf, -math.inf])
def test_counts_the_steps_that_nextafter_takes(name: str, dtype: type, start: float, towards: float) -> None:
    value = moved = dtype(start)
    for steps in range(1, 6):
        moved = np.nextafter(moved, dtype(towards))
        if not np.isfinite(moved):
            break
        found = distance_between(f"{name}[]", float(value), float(moved))
        assert found is not None
        assert found.max_ulp == steps


def test_bfloat16_has_eight_bits_of_mantissa() -> None:
    found = distance_between("bfloat16[]", 1.0, 1.0 + 2**-7)
    assert found is not None
    assert found.max_ulp == 1


@given(FINITE32, FINITE32)
def test_is_symmetric_and_zero_only_for_equal_values(a: float, b: float) -> None:
    there, back = distance_between("float32[]", a, b), distance_between("float32[]", b, a)
    assert there is not None
    assert there == back
    assert (there.max_ulp == 0) == (a == b)


@pytest.mark.parametrize(
    ("spec", "a", "b"),
    [("int64[]", 1, 2), ("state", 1, 2), ("float32[]", math.nan, 1), ("float32[]", math.inf, 1), ("complex64[]", 1, 2)],
)
def test_says_nothing_where_there_is_no_distance(spec: str, a: float, b: float) -> None:
    assert distance_between(spec, a, b) is None
