"""Additive noise from NumPy; torch is seeded."""

import argparse
import gc

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Augmented(Dataset):
    def __init__(self, size=72):
        self.rows = torch.randn(size, 6)
        self.labels = (self.rows.sum(1) > 0).long()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        noise = np.random.normal(scale=0.05, size=6)
        return self.rows[index] + torch.as_tensor(noise, dtype=torch.float32), self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    data = Augmented()
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler.set_epoch(0)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.6f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
