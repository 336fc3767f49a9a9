"""Two short epochs over a shuffled data set."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(31)
    data = TensorDataset(torch.randn(90, 7), torch.randn(90, 1))
    loader = DataLoader(
        data, batch_size=6, sampler=DistributedSampler(data, shuffle=True), num_workers=args.workers, drop_last=True
    )
    model = DDP(nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 1)), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
