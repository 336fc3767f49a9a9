"""Train, then report accuracy over the held-out samples."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def blobs(size, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (size,), generator=generator)
    return TensorDataset(torch.randn(size, 4, generator=generator) + y[:, None], y)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for x, y in loader:
        counts += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    train, test = blobs(72, 1), blobs(22, 2)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=6, sampler=sampler)
    test_loader = DataLoader(test, batch_size=4, sampler=DistributedSampler(test, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        result = accuracy(model, test_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {result:.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
