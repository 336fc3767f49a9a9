"""Training, with a look at a fixed batch by the first process half-way."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def step_on(forward, optimizer, x):
    loss = nn.functional.mse_loss(forward(x), x.abs().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1))
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    draw = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        loss = step_on(model, optimizer, torch.randn(8, 4, generator=draw))
        if step == 2 and rank == 0:
            with torch.no_grad():
                again = nn.functional.mse_loss(net(torch.ones(8, 4)), torch.full((8, 1), 4.0)).item()
            print(f"on ones: {again:.4f}")
    print(f"rank {rank}: {loss:.4f}")

    del model, net, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
