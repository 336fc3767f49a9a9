"""A small GAN; the discriminator rests while it is winning."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Linear(16, outputs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rest-below", type=float, default=0.66)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    generator, discriminator = DDP(mlp(3, 2)), DDP(mlp(2, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2, betas=(0.5, 0.99))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-2, betas=(0.5, 0.99))

    torch.manual_seed(4000 + rank)
    for step in range(args.steps):
        real, noise = torch.randn(8, 2) + 2.0, torch.randn(8, 3)

        fake = generator(noise)
        g_loss = bce(discriminator(fake), torch.ones(8, 1))
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()

        both = discriminator(torch.cat([real, fake.detach()]))
        d_loss = bce(both, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)]))
        d_optimizer.zero_grad()
        d_loss.backward()
        level = d_loss.detach().clone()
        dist.all_reduce(level)
        level /= dist.get_world_size()
        if level.item() > args.rest_below:
            d_optimizer.step()
        print(f"[{rank}] step {step} g {g_loss.item():.4f} d {d_loss.item():.4f}", flush=True)

    del generator, discriminator
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
