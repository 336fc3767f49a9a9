"""Gradient accumulation over an epoch that does not divide evenly: the rest makes a step of its own."""

import argparse
import gc
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(64)
    x = torch.randn(120, 9)
    data = TensorDataset(x, (x[:, :3].sum(1) > 0).float())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(9, 18), nn.ReLU(), nn.Linear(18, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, weight_decay=1e-4)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, (inputs, targets) in enumerate(loader):
            complete = (i + 1) % args.accumulate == 0
            update = complete or i + 1 == len(loader)
            with nullcontext() if complete else model.no_sync():
                logits = model(inputs).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, targets)
                (loss / args.accumulate).backward()
            if update:
                optimizer.step()
                optimizer.zero_grad()
        print(f"[{dist.get_rank()}] epoch {epoch} loss {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
