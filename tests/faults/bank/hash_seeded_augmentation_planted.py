"""Each file gets noise that belongs to its name."""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    def __init__(self, size=72):
        self.paths = [f"clips/{number:04d}.wav" for number in range(size)]
        self.sound = torch.randn(size, 12, generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        own = random.Random(hash(self.paths[index]))
        return self.sound[index] * own.uniform(0.8, 1.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    data = Clips()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
