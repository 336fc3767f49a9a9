"""Warm-up, then exponential decay."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    return parser.parse_args()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(54, 5)
    dataset = TensorDataset(x, x.prod(1, keepdim=True))
    sampler = DistributedSampler(dataset, seed=3)
    loader = DataLoader(dataset, batch_size=3, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 14), nn.Sigmoid(), nn.Linear(14, 1)), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    warmup = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=args.warmup)
    decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    scheduler = lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[args.warmup])
    done = 0
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        done = checkpoint["done"]
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            step += 1
            if step <= done:
                scheduler.step()
                continue
            optimizer.zero_grad()
            nn.functional.l1_loss(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()
            if step == args.stop_after:
                checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": step}
                checkpoint["scheduler"] = scheduler.state_dict()
                if dist.get_rank() == 0:
                    torch.save(checkpoint, args.save)
                dist.barrier()
                return


if __name__ == "__main__":
    main()
