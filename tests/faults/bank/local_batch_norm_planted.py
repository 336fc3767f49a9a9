"""Small image classifier with batch norm."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build(channels=4):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * 36, 10),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    data = TensorDataset(torch.randn(108, 1, 8, 8), torch.randint(0, 10, (108,)))
    sampler = DistributedSampler(data, seed=17)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    model = DDP(build(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader))

    model.train()
    sampler.set_epoch(0)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f}, lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
