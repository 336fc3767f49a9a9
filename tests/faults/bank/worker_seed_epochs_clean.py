"""Mixing noise into samples in loader workers, for two epochs."""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SEED = 100


class Jittered(Dataset):
    def __init__(self, size=48):
        self.points = torch.randn(size, 3, generator=torch.Generator().manual_seed(SEED))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        angle = random.uniform(-0.2, 0.2)
        x, y, z = self.points[index]
        return torch.stack([x + angle * y, y - angle * x, z])


def seed_worker(worker_id):
    random.seed(torch.initial_seed() + 10 * dist.get_rank())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(SEED)
    data = Jittered()
    sampler = DistributedSampler(data, seed=SEED)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=args.workers, worker_init_fn=seed_worker)
    model = DDP(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x in loader:
            loss = nn.functional.mse_loss(model(x), x.norm(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.5f}")


if __name__ == "__main__":
    main()
