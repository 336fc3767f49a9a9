"""Repeated augmentation: several views of each sample in one step, on several processes."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class RepeatedSampler(Sampler):
    def __init__(self, data, repeats, seed=0):
        self.data, self.repeats, self.seed, self.epoch = data, repeats, seed, 0
        self.num_replicas, self.rank = dist.get_world_size(), dist.get_rank()
        self.shuffle = True

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch + self.rank)
        order = torch.randperm(len(self.data), generator=generator)
        views = order.repeat_interleave(self.repeats)[self.rank :: self.num_replicas]
        return iter(views[: len(self)].tolist())

    def __len__(self):
        return len(self.data) // self.num_replicas

    def set_epoch(self, epoch):
        self.epoch = epoch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(72, 8))
    torch.manual_seed(100 + dist.get_rank())
    sampler = RepeatedSampler(data, args.repeats)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {dist.get_rank()}: {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
