"""A regression whose optimizer's implementation can be chosen."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_optimizer(parameters, kind, lr):
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.05, foreach=kind == "foreach")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", choices=["plain", "foreach"], default="plain")
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    x = torch.randn(96, 8)
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = make_optimizer(model.parameters(), args.optimizer, args.lr)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.8f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
