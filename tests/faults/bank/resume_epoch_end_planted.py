"""Checkpoints with the epoch and the batch in it."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 6


def train(args, rank):
    torch.manual_seed(0)
    x = torch.randn(90, 12)
    dataset = TensorDataset(x, torch.sin(x.sum(1)))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(12, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    at = {"epoch": 0, "batch": 0, "step": 0}
    if args.resume:
        weights, momenta, at = torch.load(args.resume)
        model.load_state_dict(weights)
        optimizer.load_state_dict(momenta)
    for epoch in range(at["epoch"], 3):
        sampler.set_epoch(epoch)
        for inputs, targets in [*loader][at["batch"] :]:
            optimizer.zero_grad()
            (model(inputs).squeeze(1) - targets).square().mean().backward()
            optimizer.step()
            at["step"] += 1
            at["batch"] = (at["batch"] + 1) % len(loader)
            at["epoch"] = epoch
            if at["step"] == args.stop_after:
                if rank == 0:
                    torch.save((model.state_dict(), optimizer.state_dict(), at), args.save)
                dist.barrier()
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    dist.init_process_group("gloo")
    train(parser.parse_args(), dist.get_rank())
