"""A classifier with dropout that is stopped and resumed in mid-epoch."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def discard_one_iteration(model):
    """DDP lays out its buckets after the first backward; have that behind us before the state is loaded."""
    model(torch.zeros(2, 10)).sum().backward()
    model.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(0)
    x = torch.randn(96, 10)
    data = TensorDataset(x, x[:, :3].argmax(1))
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, batch_size=8, sampler=sampler, generator=torch.Generator())
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    torch.manual_seed(1000 + rank)
    step = 0
    if args.resume:
        discard_one_iteration(model)
        state = torch.load(f"{args.resume}/rank{rank}.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]

    for epoch in range(step // len(loader), 3):
        sampler.set_epoch(epoch)
        for number, (inputs, targets) in enumerate(loader):
            if epoch * len(loader) + number < step:
                continue
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if args.save and step == args.stop_after:
                os.makedirs(args.save, exist_ok=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, f"{args.save}/rank{rank}.pt")
                return
    print(f"rank {rank}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
