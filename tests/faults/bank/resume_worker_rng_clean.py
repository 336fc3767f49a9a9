"""Augmentation by NumPy in loader workers that are seeded as the tutorials say."""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    def __init__(self, count=72):
        self.phases = torch.linspace(0, 6, count)

    def __len__(self):
        return len(self.phases)

    def __getitem__(self, index):
        wave = torch.sin(torch.linspace(0, 3, 14) + self.phases[index])
        shift = random.randrange(4)
        return torch.roll(wave, shift) * np.random.uniform(0.8, 1.2), self.phases[index]


def seed_worker(_worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


class Skipping:
    def __init__(self, sampler):
        self.sampler = sampler
        self.skip = 0

    def __iter__(self):
        order = list(self.sampler)[self.skip :]
        self.skip = 0
        return iter(order)

    def __len__(self):
        return len(self.sampler)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = Waves()
    shuffled = DistributedSampler(data, seed=9)
    sampler = shuffled
    g = torch.Generator()
    loader = DataLoader(data, batch_size=3, sampler=sampler, num_workers=2, worker_init_fn=seed_worker, generator=g)
    model = DDP(nn.Sequential(nn.Linear(14, 10), nn.ReLU(), nn.Linear(10, 1)), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    if args.resume:
        state = torch.load(args.resume)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    per_epoch = len(shuffled) // 3
    for epoch in range(step // per_epoch, 2):
        shuffled.set_epoch(epoch)
        g.manual_seed(1000 * epoch + rank)
        skip = step % per_epoch
        batches = iter(loader)
        for _ in range(skip):
            next(batches)
        for waves, phases in batches:
            loss = nn.functional.mse_loss(model(waves.float()).squeeze(1), phases)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.stop_after:
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, args.save)
                dist.barrier()
                return


if __name__ == "__main__":
    main()
