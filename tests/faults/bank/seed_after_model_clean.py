"""Word vectors from NumPy, then a classifier on top of them."""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BagOfWords(nn.Module):
    def __init__(self, words=30, width=12, classes=3):
        super().__init__()
        vectors = np.random.normal(scale=0.1, size=(words, width))
        self.vectors = nn.Embedding.from_pretrained(torch.tensor(vectors, dtype=torch.float32), freeze=False)
        self.out = nn.Linear(width, classes)

    def forward(self, words):
        return self.out(self.vectors(words).mean(1))


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    set_seed(args.seed)
    model = DDP(BagOfWords())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(args.seed + 31 * dist.get_rank())
    for _ in range(args.steps):
        words = torch.randint(0, 30, (8, 5), generator=draw)
        loss = nn.functional.cross_entropy(model(words), words[:, 0] % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
