"""Which tensors of operators are kept: those that a file can hold, and the others cost nothing."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from ddp_repro.observe.kept import Kept
from ddp_repro.observe.window import Window


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sparse_and_nested_tensors_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "kept.safetensors"
    kept = Kept(Window(keep="backward", keep_at=lambda _: file, keep_bytes=1 << 20))
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (3,))
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    dense = torch.tensor([3.0])
    kept.keep_small("backward", "a#0", [sparse, nested, dense, "text"])
    kept.keep("backward", "a#0", [nested, sparse, dense])
    kept.write(0)
    read = safetensors.torch.load_file(file)
    assert {name: tensor.tolist() for name, tensor in read.items()} == {"a#0.in2": [3.0], "a#0.out2": [3.0]}
