"""The digest decides in bits: what differs in any bit differs, and nothing else does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ddp_repro.observe.digest import bytes_digest, observation, spec_of, tensor_digest

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def of_bits(pattern: int) -> torch.Tensor:
    return torch.tensor([pattern], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_of_every_dtype_counts(dtype: torch.dtype) -> None:
    raw = torch.zeros(6 * dtype.itemsize, dtype=torch.uint8)
    base = tensor_digest(raw.clone().view(dtype))
    assert len(base) == 16
    bits = range(8 * dtype.itemsize) if dtype is not torch.bool else [0]
    seen = {base}
    for bit in bits:
        changed = raw.clone()
        changed[2 * dtype.itemsize + bit // 8] = 1 << (bit % 8)
        seen.add(tensor_digest(changed.view(dtype)))
    assert len(seen) == len(bits) + 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_bits_are_equal_wherever_they_lie(dtype: torch.dtype) -> None:
    tensor = torch.arange(24).reshape(2, 3, 4).to(dtype)
    shifted = torch.zeros(30, dtype=dtype)
    shifted[5:29] = tensor.flatten()
    assert tensor_digest(tensor) == tensor_digest(tensor.clone()) == tensor_digest(shifted[5:29].view(2, 3, 4))


def test_zeros_of_both_signs_differ() -> None:
    assert tensor_digest(torch.tensor([0.0])) != tensor_digest(torch.tensor([-0.0]))


def test_payloads_of_nan_differ() -> None:
    first, second = of_bits(0x7FC00000), of_bits(0x7FC00001)
    assert first.isnan().all()
    assert second.isnan().all()
    assert tensor_digest(first) != tensor_digest(second)
    assert tensor_digest(first) == tensor_digest(of_bits(0x7FC00000))


@given(st.lists(st.integers(0, 255), min_size=2, max_size=64, unique=True), st.randoms())
def test_order_counts(values: list[int], shuffler: object) -> None:
    permuted = values[1:] + values[:1]
    assert tensor_digest(torch.tensor(values)) != tensor_digest(torch.tensor(permuted))


@pytest.mark.parametrize("change", [(0, 3), (1, 2)])
def test_paired_changes_do_not_cancel(change: tuple[int, int]) -> None:
    """What XOR digests and norms miss."""
    tensor = torch.tensor([3, 5, 7, 9], dtype=torch.int32)
    changed = tensor.clone()
    changed[list(change)] ^= 0x10
    assert tensor_digest(tensor) != tensor_digest(changed)


def test_dtype_and_shape_count() -> None:
    tensor = torch.zeros(4, 6)
    digests = {
        tensor_digest(tensor),
        tensor_digest(tensor.view(6, 4)),
        tensor_digest(tensor.view(24)),
        tensor_digest(tensor.view(1, 24)),
        tensor_digest(tensor.view(torch.int32)),
        tensor_digest(torch.zeros(0, 6)),
        tensor_digest(torch.zeros(6, 0)),
        tensor_digest(torch.zeros(())),
        tensor_digest(torch.zeros(1)),
    }
    assert len(digests) == 9


@pytest.mark.parametrize(
    ("tensor", "spec"),
    [
        (torch.zeros(128, 64), "float32[128,64]"),
        (torch.tensor(3), "int64[]"),
        (torch.zeros(0, dtype=torch.bool), "bool[0]"),
        (torch.zeros(2, dtype=torch.float8_e4m3fn), "float8_e4m3fn[2]"),
        (torch.eye(3).to_sparse(), "float32[3,3] sparse_coo"),
        (torch.zeros(3, device="meta"), "float32[3] meta"),
    ],
    ids=str,
)
def test_spec_is_dtype_and_shape(tensor: torch.Tensor, spec: str) -> None:
    assert spec_of(tensor) == spec
    assert observation(tensor)[0].text == spec
    assert observation(tensor)[0].replicated == f"{spec} replicated"


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[:, ::2],
        lambda t: t.expand(3, 4, 6),
        lambda t: t.as_strided((5, 5), (1, 1)),
        lambda t: t.reshape(1, 2, 2, 6).to(memory_format=torch.channels_last),
        lambda t: t.flip(0),
        lambda t: t.requires_grad_(),
        nn.Parameter,
        lambda t: (t.requires_grad_() * 2).relu(),
    ],
)
def test_strides_and_graphs_make_no_difference(view: object) -> None:
    tensor = view(torch.arange(24.0).reshape(4, 6))  # type: ignore[operator]
    plain = torch.empty(tensor.shape)
    plain.copy_(tensor.detach())
    version, graph = tensor._version, tensor.grad_fn
    assert tensor_digest(tensor) == tensor_digest(plain)
    assert (tensor._version, tensor.grad_fn) == (version, graph)


def test_lazy_conjugates_and_negatives_are_what_they_stand_for() -> None:
    tensor = torch.randn(5, dtype=torch.complex64)
    conjugate, negative = tensor.conj(), tensor.conj().imag
    assert conjugate.is_conj()
    assert negative.is_neg()
    assert tensor_digest(conjugate) == tensor_digest(conjugate.resolve_conj().clone())
    assert tensor_digest(conjugate) != tensor_digest(tensor)
    assert tensor_digest(negative) == tensor_digest(negative.resolve_neg().clone())
    assert tensor_digest(torch._efficientzerotensor(3)) == tensor_digest(torch.zeros(3))


def test_sparse_gradients_count_by_indices_and_values() -> None:
    table = nn.Embedding(6, 2, sparse=True)

    def gradient(rows: list[int], scale: float) -> torch.Tensor:
        table.weight.grad = None
        (table(torch.tensor(rows)) * scale).sum().backward()
        assert table.weight.grad is not None
        assert table.weight.grad.is_sparse
        return table.weight.grad

    first = tensor_digest(gradient([1, 3], 1.0))
    assert first == tensor_digest(gradient([1, 3], 1.0))
    assert len({first, tensor_digest(gradient([1, 4], 1.0)), tensor_digest(gradient([1, 3], 2.0))}) == 3


@pytest.mark.filterwarnings("ignore")
def test_other_layouts_and_quantised_tensors() -> None:
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    other = torch.tensor([[0.0, 1.0], [3.0, 0.0]])
    for convert in (torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc, torch.Tensor.to_sparse):
        assert tensor_digest(convert(dense)) == tensor_digest(convert(dense))
        assert tensor_digest(convert(dense)) != tensor_digest(convert(other))
    quantised = [torch.quantize_per_tensor(dense, scale, 0, torch.quint8) for scale in (0.5, 0.5, 0.25)]
    assert tensor_digest(quantised[0]) == tensor_digest(quantised[1]) != tensor_digest(quantised[2])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("layout", "spec"), [(torch.strided, "float32[2] nested"), (torch.jagged, "float32[2,*] NestedTensor")]
)
def test_nested_tensors_count_by_their_parts(layout: torch.layout, spec: str) -> None:
    def nested(*parts: list[float]) -> tuple[str, bytes]:
        made = torch.nested.nested_tensor([torch.tensor(part) for part in parts], layout=layout)
        assert spec_of(made) == spec
        return observation(made)[0].text, tensor_digest(made)

    told = nested([1.0], [2.0, 3.0])
    assert told == nested([1.0], [2.0, 3.0])
    assert told[0] == spec
    assert len({told, nested([1.5], [2.0, 3.0]), nested([1.0, 2.0], [3.0])}) == 3


def test_a_subclass_is_read_and_not_called() -> None:
    class Shy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(f"{func} was called")

    plain = torch.arange(6.0)
    assert tensor_digest(plain.as_subclass(Shy)) == tensor_digest(plain)


def test_an_array_of_the_same_bits_can_be_digested_as_bytes() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert bytes_digest(array.tobytes(), "float32[3,4]") == tensor_digest(torch.from_numpy(array))
    assert bytes_digest(b"same", "one spec") != bytes_digest(b"same", "another")


def test_memory_that_changed_is_read_anew() -> None:
    tensor = torch.zeros(1000)
    before = tensor_digest(tensor)
    tensor[999] = 1.0
    assert tensor_digest(tensor) != before
    tensor.data = torch.zeros(1000)
    assert tensor_digest(tensor) == before


def test_the_digest_is_what_it_always_was() -> None:
    """A change of the algorithm is a change of the traces' schema."""
    assert tensor_digest(torch.arange(10.0).reshape(2, 5)).hex() == "a7318e4359a41cad119d48983c690a67"
