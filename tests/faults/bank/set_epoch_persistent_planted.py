"""Stream samples in an order that the data set draws anew in each epoch."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ShuffledStream(IterableDataset):
    def __init__(self, size, rank, world, seed=0):
        self.rows = torch.randn(size, 6, generator=torch.Generator().manual_seed(77))
        self.rank, self.world, self.seed = rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        generator = torch.Generator().manual_seed(self.seed + int(self.epoch))
        order = torch.randperm(len(self.rows), generator=generator)[self.rank :: self.world]
        for index in order[info.id :: info.num_workers]:
            yield self.rows[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = ShuffledStream(96, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(data, batch_size=4, num_workers=args.workers, persistent_workers=True)
    model = DDP(nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        data.set_epoch(epoch)
        for x in loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} {loss.item():.5f}")


if __name__ == "__main__":
    main()
