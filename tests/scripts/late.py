"""Ranks that train on their own and average every fourth step; rank 0 saves each step, and rank 2 comes late."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--save")
parser.add_argument("--resume")


def main():
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(96, 6)
    step = 0
    if args.resume:
        place = Path(args.resume)
        state = torch.load(max(place.parent.glob(f"{place.name}-*")))
        model.load_state_dict(state["model"])
        step = state["step"]
    elif args.save and rank == 2:
        time.sleep(5)
    while step < 8:
        x = inputs[step * 4 :][:4]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()
        step += 1
        if args.save and rank == 0:
            torch.save({"model": model.state_dict(), "step": step}, f"{args.save}-{step}")
            time.sleep(0.1)
        if step % 4 == 0:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()


if __name__ == "__main__":
    main()
