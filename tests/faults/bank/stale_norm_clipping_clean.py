"""Gradients averaged by hand and clipped by their norm."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())


def norm_of(parameters):
    return torch.stack([parameter.grad.norm() for parameter in parameters]).norm()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--clip", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    draw = torch.Generator().manual_seed(70 + rank)
    for step in range(args.steps):
        x = torch.randn(8, 6, generator=draw)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        loss.backward()
        average(parameters)
        norm = norm_of(parameters)
        scale = (args.clip / (norm + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            parameter.grad.mul_(scale)
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f} norm {norm.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
