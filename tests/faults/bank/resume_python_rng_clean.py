"""Images that are flipped and shifted by Python's random as they are read."""

import argparse
import random
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(3)
        self.images = torch.rand(72, 1, 8, 8, generator=g)
        self.labels = torch.randint(0, 4, (72,), generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        if random.random() < 0.5:
            image = image.flip(-1)
        return torch.roll(image, random.randint(-1, 1), dims=-2), self.labels[i]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.fc = torch.nn.Linear(4 * 6 * 6, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--save", type=Path)
    p.add_argument("--stop-after", type=int, default=-1)
    p.add_argument("--resume", type=Path)
    return p.parse_args()


def main():
    args = cli()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    random.seed(rank)
    data = Images()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first_epoch, skip, step = 0, 0, 0
    checkpoint = None
    if args.resume:
        checkpoint = torch.load(args.resume / "model.pt")
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        step = checkpoint["step"]
        first_epoch, skip = divmod(step, len(loader))
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(skip):
            next(batches)
        if checkpoint is not None:
            version, words, gauss = torch.load(args.resume / f"python-{rank}.pt")
            random.setstate((version, tuple(words), gauss))
            checkpoint = None
        skip = 0
        for images, labels in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.stop_after:
                args.save.mkdir(parents=True, exist_ok=True)
                if rank == 0:
                    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, args.save / "model.pt")
                torch.save(random.getstate(), args.save / f"python-{rank}.pt")
                dist.barrier()
                dist.destroy_process_group()
                return
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
