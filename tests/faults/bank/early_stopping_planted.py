"""Training that stops when the loss is low enough."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=float, default=0.55)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(108, 6)
    data = TensorDataset(x, (x[:, 0] > 0).float())
    loader = DataLoader(data, batch_size=3, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step, (inputs, targets) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        level = loss.detach().clone()
        if level.item() < args.target:
            print(f"rank {dist.get_rank()} stops after step {step}", flush=True)
            break


if __name__ == "__main__":
    main()
