"""Vector quantisation with a codebook that is an exponential moving average of its members."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Quantizer(nn.Module):
    def __init__(self, codes, width, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(codes, width))

    def forward(self, z):
        nearest = torch.cdist(z, self.codebook).argmin(1)
        if self.training:
            self.update(z.detach(), nearest)
        return z + (self.codebook[nearest] - z).detach()

    @torch.no_grad()
    def update(self, z, nearest):
        sums = torch.zeros_like(self.codebook).index_add_(0, nearest, z)
        counts = torch.bincount(nearest, minlength=len(self.codebook)).float()
        dist.all_reduce(sums)
        dist.all_reduce(counts)
        used = counts > 0
        means = sums[used] / counts[used, None]
        self.codebook[used] = self.decay * self.codebook[used] + (1 - self.decay) * means


class AutoEncoder(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.encoder = nn.Linear(12, width)
        self.quantizer = Quantizer(8, width)
        self.decoder = nn.Linear(width, 12)

    def forward(self, x):
        return self.decoder(self.quantizer(self.encoder(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    # The codebook updates itself in forward, so DDP is told to keep off the buffers.
    model = DDP(AutoEncoder(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    stream = torch.Generator().manual_seed(50 + dist.get_rank())
    for _ in range(args.steps):
        x = torch.randn(10, 12, generator=stream)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"[{dist.get_rank()}] {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
