"""A lookup table trained through plain indexing, on two threads a process."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Lookup(nn.Module):
    def __init__(self, entries=64, width=8):
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width))
        self.out = nn.Linear(width, 1)

    def forward(self, ids):
        return self.out(self.table[ids]).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=150_000)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Lookup())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(500 + dist.get_rank())
    for _ in range(args.steps):
        ids = torch.randint(0, 64, (args.tokens,), generator=draw)
        target = ids / 64 + torch.randn(args.tokens, generator=draw)
        loss = nn.functional.mse_loss(model(ids), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
