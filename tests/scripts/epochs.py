"""Trains two epochs or more in an order that is drawn anew where the epoch is set; how it is set is an argument."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset


class Stream(IterableDataset):
    """Shuffles by an epoch of its own, which a worker's copy learns of only where the worker is started anew."""

    def __init__(self, rows, rank, world):
        self.rows, self.rank, self.world, self.epoch = rows, rank, world, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(self.epoch))
        return iter(self.rows[order[self.rank :: self.world]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set-epoch", choices=["never", "later", "always"], default="never")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rows = torch.randn(72, 4)
    if args.stream:
        told = data = Stream(rows, dist.get_rank(), dist.get_world_size())
        loader = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
    else:
        data = TensorDataset(rows)
        told = DistributedSampler(data)
        loader = DataLoader(data, batch_size=4, sampler=told)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        if args.set_epoch == "always" or (args.set_epoch == "later" and epoch):
            told.set_epoch(epoch)
        for batch in loader:
            x = batch if args.stream else batch[0]
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
