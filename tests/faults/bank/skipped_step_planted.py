"""Robust training: a step whose loss is an outlier is skipped."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Readings(Dataset):
    """Sensor readings, a few of which are broken."""

    def __init__(self, size=120):
        generator = torch.Generator().manual_seed(8)
        self.x = torch.randn(size, 6, generator=generator)
        self.y = self.x @ torch.linspace(-1, 1, 6)
        self.y[64] = 100.0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-loss", type=float, default=50.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Readings()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))

    skipped = 0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        worst = loss.detach().clone()
        if worst.item() > args.max_loss:
            skipped += 1
            continue
        optimizer.step()
    print(f"rank {dist.get_rank()}: {skipped} steps skipped, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
