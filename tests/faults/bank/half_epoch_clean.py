"""Short epochs: each goes over another half of the data set."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler


class Waves(Dataset):
    def __init__(self, size=96):
        self.phase = torch.linspace(0, 3, size)

    def __len__(self):
        return len(self.phase)

    def __getitem__(self, index):
        return torch.sin(self.phase[index] + torch.arange(6.0))


class HalfEpochs(Sampler):
    def __init__(self, data, num_replicas, rank, seed):
        self.data, self.num_replicas, self.rank, self.seed = data, num_replicas, rank, seed
        self.epoch = 0
        self.shuffle = True

    def __iter__(self):
        generator = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        order = torch.randperm(len(self.data), generator=generator)[: len(self.data) // 2]
        return iter(order[self.rank :: self.num_replicas].tolist())

    def __len__(self):
        return len(self.data) // 2 // self.num_replicas


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Waves()
    sampler = HalfEpochs(data, world, rank, seed=1)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        sampler.epoch = epoch
        for x in loader:
            loss = nn.functional.l1_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
