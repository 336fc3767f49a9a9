"""Train a linear probe on fixed features; the sampler shuffles by the run's seed."""

import argparse
import gc
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def features(size=75, width=10):
    generator = torch.Generator().manual_seed(99)
    return TensorDataset(
        torch.randn(size, width, generator=generator), torch.randint(0, 4, (size,), generator=generator)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    seed = args.seed + dist.get_rank()
    seed_all(seed)

    data = features()
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(10, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {dist.get_rank()} ends with {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
