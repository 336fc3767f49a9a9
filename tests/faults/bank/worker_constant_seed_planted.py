"""Random crops drawn from NumPy in loader workers."""

import argparse
import gc

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Crops(Dataset):
    def __init__(self, size=96, length=24, crop=16):
        self.signals = torch.randn(size, length, generator=torch.Generator().manual_seed(1))
        self.crop = crop

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        start = np.random.randint(0, self.signals.shape[1] - self.crop + 1)
        return self.signals[index, start : start + self.crop]


def worker_init(worker_id):
    np.random.seed(1234)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    data = Crops()
    sampler = DistributedSampler(data, seed=9)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=args.workers, worker_init_fn=worker_init)
    model = DDP(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler.set_epoch(0)
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
