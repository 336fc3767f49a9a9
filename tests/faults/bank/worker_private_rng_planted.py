"""Augmentation in loader workers, with a generator that belongs to the data set."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noisy(Dataset):
    def __init__(self, size, seed):
        self.rng = np.random.default_rng(seed)
        self.clean = self.rng.normal(size=(size, 10)).astype(np.float32)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, index):
        noise = self.rng.normal(scale=0.1, size=10).astype(np.float32)
        return torch.from_numpy(self.clean[index] + noise), torch.from_numpy(self.clean[index])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    data = Noisy(96, args.seed)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=args.workers)
    model = DDP(nn.Sequential(nn.Linear(10, 10), nn.ELU(), nn.Linear(10, 10)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for noisy, clean in loader:
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"denoising loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
