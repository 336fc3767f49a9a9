"""Noise that is meant to be the same whenever a sample is looked at."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noisy(Dataset):
    def __init__(self, size=72):
        self.rows = torch.randn(size, 6, generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        torch.manual_seed(index)
        return self.rows[index] + 0.1 * torch.randn(6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Noisy()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3))
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()}: {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
