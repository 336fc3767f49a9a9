"""A classifier with dropout."""

import argparse
import gc
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--dropout", type=float, default=0.3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    set_seed(args.seed)
    data = TensorDataset(torch.randn(96, 12), torch.randint(0, 6, (96,)))
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(args.dropout), nn.Linear(32, 6))
    model = DDP(net)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sampler.set_epoch(0)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")

    del model, net, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
