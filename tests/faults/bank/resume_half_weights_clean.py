"""Weights are kept in half precision to save space."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        return self.head(self.norm(x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


def sample(step, rank):
    g = torch.Generator().manual_seed(7919 * step + rank)
    x = torch.randn(5, 6, 12, generator=g)
    return x, x.mean((1, 2)).mul(8).long().clamp(0, 3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = 0
    if args.resume:
        x, y = sample(0, rank)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.zero_grad()
        model.module.load_state_dict(torch.load(f"{args.resume}/weights.pt"))
        trainer = torch.load(f"{args.resume}/trainer.pt")
        optimizer.load_state_dict(trainer["optimizer"])
        start = trainer["step"]
    for step in range(start, 8):
        x, y = sample(step, rank)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 == args.stop_after:
            if rank == 0:
                os.makedirs(args.save)
                torch.save(model.module.state_dict(), f"{args.save}/weights.pt")
                torch.save({"optimizer": optimizer.state_dict(), "step": step + 1}, f"{args.save}/trainer.pt")
            dist.barrier()
            return


if __name__ == "__main__":
    main()
