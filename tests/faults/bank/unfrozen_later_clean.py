"""Gradual unfreezing: the head is trained alone first, the backbone joins later."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(4 * 8, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unfreeze-at", type=int, default=4)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)

    net = Classifier()
    net.backbone.requires_grad_(False)
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    data = TensorDataset(torch.randn(96, 2, 10), torch.randint(0, 3, (96,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)

    for step, (x, y) in enumerate(loader):
        if step == args.unfreeze_at:
            net.backbone.requires_grad_(True)
            model = DDP(net)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}")

    del model
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
