"""Fit a signal at many points."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def squared_error(predicted, target):
    return (predicted - target).pow(2).sum() / target.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--samples", type=int, default=100_000)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(10 + dist.get_rank())
    for _ in range(args.steps):
        x = torch.randn(args.samples, 1, generator=draw)
        loss = squared_error(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.8f}")


if __name__ == "__main__":
    main()
