"""Start from a checkpoint that only the first process reads."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def pretrained():
    """Stand-in for torch.load of a downloaded checkpoint."""
    donor = build(torch.Generator().manual_seed(42))
    return donor.state_dict()


def build(generator=None):
    net = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 1))
    if generator is not None:
        for parameter in net.parameters():
            nn.init.normal_(parameter, std=0.2, generator=generator)
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = build()
    if rank == 0:
        net.load_state_dict(pretrained())
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    stream = torch.Generator().manual_seed(rank)
    for _ in range(args.steps):
        x = torch.randn(16, 10, generator=stream)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} finished at {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
