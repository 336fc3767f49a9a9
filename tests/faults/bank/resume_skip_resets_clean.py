"""Batches that were trained on are skipped by a loader that is made anew for the first epoch."""

import argparse
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset


class SkipBatches(BatchSampler):
    def __init__(self, batch_sampler, skip):
        self.inner = batch_sampler
        self.skip = skip

    def __iter__(self):
        return islice(iter(self.inner), self.skip, None)

    def __len__(self):
        return len(self.inner) - self.skip


def make_loader(dataset):
    sampler = DistributedSampler(dataset, seed=5, drop_last=True)
    return DataLoader(dataset, batch_sampler=BatchSampler(sampler, 4, drop_last=True))


def skip_first_batches(loader, skip):
    return DataLoader(loader.dataset, batch_sampler=SkipBatches(loader.batch_sampler, skip))


def settle(model):
    model(torch.zeros(1, 7)).sum().backward()
    for parameter in model.parameters():
        parameter.grad = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    x = torch.randn(72, 7)
    dataset = TensorDataset(x, x.norm(dim=1, keepdim=True))
    loader = make_loader(dataset)
    model = DDP(nn.Sequential(nn.Linear(7, 16), nn.GELU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, amsgrad=True)
    global_step = 0
    if args.resume:
        settle(model)
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        global_step = checkpoint["global_step"]
    for epoch in range(global_step // len(loader), 3):
        loader.batch_sampler.sampler.set_epoch(epoch)
        skip = global_step % len(loader)
        for inputs, targets in skip_first_batches(loader, skip) if skip else loader:
            loss = (model(inputs) - targets).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            global_step += 1
            if global_step == args.stop_after:
                if dist.get_rank() == 0:
                    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save({**saved, "global_step": global_step}, args.save)
                dist.barrier()
                return


if __name__ == "__main__":
    main()
