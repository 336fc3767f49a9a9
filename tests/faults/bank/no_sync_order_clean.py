"""Train a classifier with gradient accumulation, synchronising once a step."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Spectra(Dataset):
    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 20, generator=generator)
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    net = DDP(nn.Sequential(nn.Linear(20, 24), nn.GELU(), nn.Linear(24, 2)))
    data = Spectra(144, seed=7)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

    sampler.set_epoch(0)
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % args.accumulate == 0
        with nullcontext() if last else net.no_sync():
            loss = nn.functional.cross_entropy(net(x), y) / args.accumulate
            loss.backward()
        if (i + 1) % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"last loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
