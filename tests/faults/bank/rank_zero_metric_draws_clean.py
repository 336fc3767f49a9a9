"""A denoising model; the first process looks at samples now and then."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noisy(Dataset):
    def __init__(self, size=96):
        self.rows = torch.randn(size, 8, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        noise = np.random.normal(scale=0.3, size=8).astype(np.float32)
        return self.rows[index] + torch.from_numpy(noise), self.rows[index]


@torch.no_grad()
def preview(net, data, count=5):
    chosen = np.random.default_rng(count).choice(len(data.rows), count)
    clean = data.rows[torch.from_numpy(chosen)]
    return (net(clean) - clean).abs().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preview-every", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    np.random.seed(900 + rank)
    data = Noisy()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (noisy, clean) in enumerate(loader, start=1):
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and args.preview_every and step % args.preview_every == 0:
            print(f"step {step}: off by {preview(model.module, data):.4f}")


if __name__ == "__main__":
    main()
