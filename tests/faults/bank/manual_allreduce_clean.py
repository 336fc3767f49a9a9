"""Data parallel training without DistributedDataParallel: gradients are averaged by hand."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


class PatchClassifier(nn.Module):
    def __init__(self, patches=4, width=16, classes=4):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(patches, width))
        self.embed = nn.Linear(9, width)
        self.block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x) + self.position
        return self.head((x + self.block(x)).mean(1))


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    model = PatchClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    noise = torch.Generator().manual_seed(1000 + rank)
    for step in range(args.steps):
        x = torch.randn(8, 4, 9, generator=noise)
        y = x.sum((1, 2)).gt(0).long()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
