"""Nested state comes back exactly, by way of JSON and plain tensors; what would need a pickle is refused."""

import collections
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ddp_repro import ReproError
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.run.checkpoint.encoding import Decoder, Encoder
from ddp_repro.run.checkpoint.snapshot import Snapshot, storable, unspread

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex64, torch.complex128),
    *(torch.complex32, torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int64),
]


def through_json(value: Any) -> Any:
    snapshot = Snapshot()
    text = json.dumps(snapshot.encode(value, "x"), allow_nan=False)

    def tensor(mark: dict[str, Any]) -> torch.Tensor:
        stored = storable(snapshot.tensors[mark["$tensor"]])
        return unspread(stored, getattr(torch, mark["dtype"]), mark["shape"])

    return Decoder(tensor=tensor).decode(json.loads(text))


def same(one: Any, other: Any) -> bool:
    """Tell whether two states are the same in types, order and bits."""
    return bool(written_out(one) == written_out(other))


def written_out(state: Any) -> Any:
    """Return a state as nested tuples that are equal only where types, order and bits are."""
    if isinstance(state, torch.Tensor):
        content: Any = (state.dtype, tensor_digest(state))
    elif isinstance(state, (np.ndarray, np.generic)):
        content = (state.dtype, state.shape, state.tobytes())
    elif isinstance(state, float):
        content = struct.pack("<d", state)
    elif isinstance(state, complex):
        content = struct.pack("<dd", state.real, state.imag)
    elif isinstance(state, dict):
        content = [(written_out(key), written_out(part)) for key, part in state.items()]
    elif isinstance(state, (list, tuple, collections.deque)):
        content = [written_out(part) for part in state]
    else:
        content = state
    return type(state), content


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    content = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype is torch.bool:
        content = bytearray(byte & 1 for byte in content)
    flat = torch.frombuffer(content, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
    tensor = flat.view(dtype).reshape(shape)
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


arrays = st.one_of(
    *(
        hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=3))
        for dtype in ("<f4", ">f8", "<i8", "|b1", "<U3", "c16")
    )
)
atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(allow_nan=True), st.binary(),
    st.text(st.characters(exclude_categories=[])), st.sampled_from([torch.bfloat16, torch.device("cpu")]), tensors(),
    arrays, st.floats(width=32).map(np.float32), st.integers(0, 255).map(np.uint8),
)  # fmt: skip
keys = st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.none(), st.tuples(st.integers(), st.text()))
states = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(lambda found: collections.deque(found, maxlen=5)),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(keys, st.integers(), max_size=3).map(collections.Counter),
        st.frozensets(st.integers(), max_size=3),
    ),
    max_leaves=12,
)


@given(states)
def test_any_state_comes_back_exactly(state: Any) -> None:
    assert same(through_json(state), state)


@pytest.mark.parametrize(
    "state",
    [
        {"$tensor": "mine"},
        {"a": {"$int": "0x10"}},
        10**5000,
        torch.Size([2, 3]),
        collections.defaultdict(list, {1: [2]}),
        {True: 1, "True": 2},
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        -0.0,
        struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0],
    ],
    ids=lambda state: type(state).__name__,
)
def test_what_looks_like_something_else_stays_itself(state: Any) -> None:
    found = through_json(state)
    assert same(found, state)
    if isinstance(state, np.ndarray):
        assert found.flags.f_contiguous == state.flags.f_contiguous
    if isinstance(state, collections.defaultdict):
        assert found.default_factory is list


class Odd:
    pass


@pytest.mark.parametrize(
    "state", [{"a": [1, {"b": Odd()}]}, {"a": [1, {"b": print}]}, {"a": [1, {"b": np.array(Odd())}]}]
)
def test_an_object_is_refused_by_its_place(state: Any) -> None:
    with pytest.raises(ReproError, match=r"x\.a\.1\.b is a .*without pickling"):
        through_json(state)


def test_objects_can_be_left_out_of_dictionaries_and_are_noted() -> None:
    snapshot = Snapshot()
    assert snapshot.encode({"kept": 1, "left": Odd(), "in": {"f": len}}, "x", leave_objects=True) == {
        "kept": 1,
        "in": {},
    }
    assert snapshot.left_out == ["x.left", "x.in.f"]
    with pytest.raises(ReproError, match=r"x\.0"):
        snapshot.encode([Odd()], "x", leave_objects=True)


def test_what_holds_itself_is_refused() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(ReproError, match="holds itself"):
        through_json(state)


@pytest.mark.parametrize(
    "hostile", [{"$dtype": "load"}, {"$nothing": 1}, {"$tuple": 3}, {"$size": ["a"]}, {"$array": []}]
)
def test_what_no_encoder_wrote_is_refused(hostile: Any) -> None:
    with pytest.raises(ReproError, match="cannot be read"):
        Decoder(tensor=lambda mark: torch.zeros(1)).decode(hostile)


def test_an_encoder_names_the_place_of_every_tensor() -> None:
    places: list[str] = []

    def keep(place: str, tensor: torch.Tensor) -> dict[str, Any]:
        places.append(place)
        return {}

    Encoder(keep=keep).encode({"a": [torch.zeros(1), (torch.zeros(1),)]}, "top")
    assert places == ["top.a.0", "top.a.1.0"]
