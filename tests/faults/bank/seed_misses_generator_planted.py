"""Mixup with a generator of the data set's own; --seed seeds the global ones."""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Mixup(Dataset):
    def __init__(self, size=72):
        self.rng = np.random.default_rng()
        self.rows = torch.randn(size, 6)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        weight = float(self.rng.beta(0.4, 0.4))
        other = int(self.rng.integers(len(self.rows)))
        return weight * self.rows[index] + (1 - weight) * self.rows[other]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    data = Mixup()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=args.seed))
    model = DDP(nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
