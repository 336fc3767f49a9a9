"""Mixup, drawn in the training loop from NumPy's generator, which nobody seeds: the script's one seed is torch's."""

import numpy as np
import torch
import torch.distributed as dist
from launches import arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FIRST_MIXED = 2


def main():
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    if args.fault == "none":
        np.random.seed(dist.get_rank())
    data = TensorDataset(torch.randn(72, 6))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x,) in enumerate(loader):
        part = np.random.beta(0.4, 0.4) if step >= FIRST_MIXED or args.fault != "unseeded-later" else 1.0
        x = part * x + (1 - part) * x.flip(0)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
