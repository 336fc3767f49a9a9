"""Stream shards with loader workers."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Shards(IterableDataset):
    """Each shard is a block of samples; a rank reads every world-th shard."""

    def __init__(self, shards, rank, world):
        self.mine = list(range(rank, shards, world))

    def read(self, shard):
        generator = torch.Generator().manual_seed(shard)
        x = torch.randn(4, 6, generator=generator)
        yield from zip(x, x.pow(2).sum(1, keepdim=True), strict=True)

    def __iter__(self):
        for shard in self.mine:
            yield from self.read(shard)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=24)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    data = Shards(args.shards, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(data, batch_size=4, num_workers=args.workers)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.Softplus(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    steps = 0
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"rank {dist.get_rank()}: {steps} steps, loss {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
