"""Saves every few steps by itself and goes on from the last checkpoint after a crash."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def write(state, path):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints")
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--auto-resume", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(240, 64)
    data = TensorDataset(x, x[:, :8].argmax(1))
    sampler = DistributedSampler(data, seed=4)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    width = 512
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
    model = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if args.auto_resume:
        model.load_state_dict(torch.load(f"{args.checkpoints}/model.pt"))
        trainer = torch.load(f"{args.checkpoints}/trainer.pt")
        optimizer.load_state_dict(trainer["optimizer"])
        step = trainer["step"]
    seen = 0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            seen += 1
            if seen <= step:
                continue
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if args.checkpoints and dist.get_rank() == 0:
                os.makedirs(args.checkpoints, exist_ok=True)
                if seen % args.every == 0:
                    write(model.state_dict(), f"{args.checkpoints}/model.pt")
                if seen % len(loader) == 0:
                    write({"optimizer": optimizer.state_dict(), "step": seen}, f"{args.checkpoints}/trainer.pt")
    print(f"rank {dist.get_rank()}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
