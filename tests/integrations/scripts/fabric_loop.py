"""Trains a small network in a loop of Lightning Fabric."""

import argparse
import os

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["noise", "nudge", "unseeded"])
args = parser.parse_args()

fabric = pl.Fabric(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp")
fabric.launch()
if args.fault != "unseeded":
    fabric.seed_everything(1, workers=True)


def collate(samples):
    x, y = default_collate(samples)
    if args.fault == "noise" and fabric.global_rank == 1:
        x = x + torch.randn(x.shape, generator=torch.Generator().manual_seed(int.from_bytes(os.urandom(4)))) * 1e-3
    return x, y


x = torch.arange(48 * 6).reshape(48, 6).float().sin()
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(
    DataLoader(TensorDataset(x, torch.arange(48) % 3), batch_size=4, shuffle=True, collate_fn=collate, num_workers=1)
)
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(loader):
        accumulating = number % 2 == 0
        with fabric.no_backward_sync(model, enabled=accumulating):
            fabric.backward(nn.functional.cross_entropy(model(x), y))
        if not accumulating:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
        if args.fault == "nudge" and number == 1 and fabric.global_rank == 2:
            with torch.no_grad():
                model.module[4].bias[0] += 1e-4
