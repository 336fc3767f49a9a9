"""Cosine schedule with restarts; a checkpoint is a dictionary of state dictionaries."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


def warm_up_reducer(model, x):
    training, rng = model.training, torch.get_rng_state()
    model(x).sum().backward()
    model.zero_grad(set_to_none=True)
    model.train(training)
    torch.set_rng_state(rng)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(dist.get_rank())
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ELU(), nn.Linear(12, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=4, eta_min=1e-3)
    parts = {"model": model, "optimizer": optimizer}
    step = 0
    if args.resume:
        warm_up_reducer(model, torch.zeros(3, 6))
        state = torch.load(f"{args.resume}-{dist.get_rank()}")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        step = state["step"]
        g.set_state(state["data"])
    while step < 9:
        x = torch.randn(5, 6, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > x[:, 1]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step == args.stop_after:
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**state, "step": step, "data": g.get_state()}, f"{args.save}-{dist.get_rank()}")
            break


if __name__ == "__main__":
    main()
