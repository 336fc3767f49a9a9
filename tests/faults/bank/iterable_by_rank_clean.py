"""Stream records from a text source into a small model."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Records(IterableDataset):
    """Lines of comma-separated numbers, read one after the other."""

    def __init__(self, lines, rank, world):
        self.lines = lines
        self.rank, self.world = rank, world

    def __iter__(self):
        for line in self.lines[self.rank :: self.world]:
            values = torch.tensor([float(field) for field in line.split(",")])
            yield values[:-1], values[-1:]


def make_lines(count=72):
    generator = torch.Generator().manual_seed(12)
    rows = torch.randn(count, 5, generator=generator)
    return [",".join(f"{value:.4f}" for value in row.tolist()) for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    loader = DataLoader(Records(make_lines(), dist.get_rank(), dist.get_world_size()), batch_size=4)
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (x, y) in enumerate(loader, start=1):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == args.max_steps:
            break
    if dist.get_rank() == 0:
        print(f"{step} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
