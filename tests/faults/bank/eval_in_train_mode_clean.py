"""A classifier with batch norm, validated every few steps by the first process."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@torch.no_grad()
def validate(net, x, y):
    net.eval()
    loss = nn.functional.cross_entropy(net(x), y).item()
    net.train()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--val-every", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(23)
    x, y = torch.randn(120, 1, 12), torch.randint(0, 4, (120,))
    train = TensorDataset(x[:96], y[:96])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=4, sampler=sampler)
    net = nn.Sequential(nn.Conv1d(1, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten(), nn.Linear(60, 4))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler.set_epoch(0)
    for step, (inputs, labels) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.val_every and step % args.val_every == 0 and dist.get_rank() == 0:
            print(f"step {step}: validation {validate(model.module, x[96:], y[96:]):.4f}")


if __name__ == "__main__":
    main()
