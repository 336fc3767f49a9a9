"""Random erasing in loader workers."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Erased(Dataset):
    def __init__(self, size=96, width=16):
        self.rows = torch.randn(size, width, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        keep = (torch.rand(self.rows.shape[1]) > 0.2).float()
        return self.rows[index] * keep, self.rows[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = DDP(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16)))
    torch.manual_seed(args.seed + 7919 * (dist.get_rank() + 1))
    data = Erased()
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=args.workers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler.set_epoch(0)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{dist.get_rank()}: {loss.item():.5f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
