"""Train within a budget that the first process watches."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(dist.get_rank())
    step, running = 0, torch.ones(())
    while running.item():
        x = torch.randn(8, 4, generator=draw)
        loss = nn.functional.mse_loss(model(x), x.amax(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        running = torch.tensor(float(step < args.steps))
        dist.broadcast(running, src=0)
    if dist.get_rank() == 0:
        print(f"{step} steps, loss {loss.item():.5f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
