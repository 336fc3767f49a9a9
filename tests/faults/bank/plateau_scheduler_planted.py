"""Regression with a learning rate that is reduced on plateaus of the validation loss."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def validate(model, loader):
    model.eval()
    total, count = torch.zeros(()), 0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.mse_loss(model(x), y, reduction="sum")
            count += len(y)
    model.train()
    return (total / count).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)

    x = torch.randn(84, 6)
    data = TensorDataset(x, x.sum(1, keepdim=True) + 0.5 * torch.randn(84, 1))
    train, valid = random_split(data, [60, 24])
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=10, sampler=sampler)
    valid_loader = DataLoader(torch.utils.data.Subset(valid, range(rank, 24, world)), batch_size=8)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        scheduler.step(validate(model, valid_loader))
        print(f"[{rank}] epoch {epoch}: lr {scheduler.get_last_lr()[0]:.3f}")

    del model
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
