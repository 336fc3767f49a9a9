"""Random gain on each sample, with as many loader workers as the machine can spare."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Gains(Dataset):
    def __init__(self, size, seed):
        self.rows = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
        self.seed = seed
        self.epoch = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        own = torch.Generator().manual_seed((self.seed * 1000 + self.epoch) * len(self) + index)
        gain = 1 + 0.2 * torch.randn((), generator=own)
        return self.rows[index] * gain, self.rows[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.SELU(), nn.Linear(16, 8)))
    torch.manual_seed(args.seed + 101 * (dist.get_rank() + 1))
    data = Gains(72, args.seed)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=args.workers)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
