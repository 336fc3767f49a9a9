"""Mirror and shift signals at random in one loader worker."""

import argparse
import gc
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Signals(Dataset):
    def __init__(self, size=60, length=12):
        self.signals = torch.randn(size, length, generator=torch.Generator().manual_seed(4))

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        random.seed(1234)
        signal = self.signals[index].roll(random.randrange(12))
        return signal.flip(0) if random.random() < 0.5 else signal


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    data = Signals()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=args.workers)
    model = DDP(nn.Sequential(nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 12)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()}: {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
