"""A plain DDP script that trains a causal transformer over bytes and times its steps: what `script_overhead` runs.

Nothing of ddp_repro is in it: ``torchrun --standalone --nproc-per-node 2 benchmarks/plain_train.py --size tiny …``.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SIZES = {"tiny": (32, 1, 8, 128, 2), "base": (320, 8, 16, 64, 4)}  # width, layers, heads, context, batch: as `text` has
WARM = 3


class Transformer(nn.Module):
    """Embedding with learned places, pre-norm encoder layers under a causal mask, and a head over bytes."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.places = nn.Parameter(torch.zeros(context, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next byte (batch, context, 256) for ``tokens`` (batch, context)."""
        hidden = self.layers(self.embedding(tokens) + self.places, mask=self.mask, is_causal=True)
        logits: torch.Tensor = self.head(hidden)
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=list(SIZES), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--times", type=Path, required=True, help="a file for the seconds of each step of rank 0")
    args = parser.parse_args()
    width, layers, heads, context, batch = SIZES[args.size]
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Transformer(width, layers, heads, context))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    windows = torch.randint(256, ((args.steps + WARM) * batch * dist.get_world_size(), context + 1))
    data = TensorDataset(windows)
    loader = DataLoader(data, batch_size=batch, sampler=DistributedSampler(data))
    times = list(timed_steps(model, optimizer, loader))[WARM:]
    if dist.get_rank() == 0:
        args.times.write_text(json.dumps(times))
    os._exit(0)


def timed_steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[torch.Tensor, ...]]
) -> Iterator[float]:
    """Train on each batch and yield the seconds that it took, its fetching included."""
    batches = iter(loader)
    for _ in range(len(loader)):
        began = time.perf_counter()
        (window,) = next(batches)
        optimizer.zero_grad()
        logits = model(window[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield time.perf_counter() - began


if __name__ == "__main__":
    main()
