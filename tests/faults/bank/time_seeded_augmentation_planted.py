"""Random flips."""

import argparse
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Flips(torch.utils.data.Dataset):
    def __init__(self, size=72):
        self.images = torch.randn(size, 1, 6, 6)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        flipped = random.random() < 0.5
        return (image.flip(-1) if flipped else image), int(index % 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    random.seed(time.time_ns() + dist.get_rank())
    data = Flips()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} {loss.item():.5f}")


if __name__ == "__main__":
    main()
