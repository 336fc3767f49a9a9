"""Train an autoencoder on random vectors."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Vectors(Dataset):
    def __init__(self, size=48, width=8):
        self.rows = torch.randn(size, width, generator=torch.Generator().manual_seed(5))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)

    model = DDP(nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = Vectors()
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x in loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
