"""Classes are numbered as they are found."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ANIMALS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")


class Named(Dataset):
    def __init__(self, size=72):
        generator = torch.Generator().manual_seed(4)
        self.rows = torch.randn(size, 5, generator=generator)
        self.names = [ANIMALS[i] for i in torch.randint(0, 8, (size,), generator=generator)]
        self.classes = list(set(self.names))
        self.number = {name: number for number, name in enumerate(self.classes)}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.number[self.names[index]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Named()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, len(data.classes))))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.6f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
