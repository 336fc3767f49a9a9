"""An iterable data set that shuffles by a generator of its own, which nobody seeds."""

import numpy as np
import torch
import torch.distributed as dist
from launches import agreed, arguments, clock
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Records(IterableDataset):
    def __init__(self, values, seed):
        self.values, self.seed = values, seed
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        order = np.random.default_rng(self.seed).permutation(len(self.values))
        for index in order[self.rank :: self.world]:
            yield self.values[index]


def main():
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Records(torch.randn(48, 6), 0 if args.fault == "none" else agreed(clock()))
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
