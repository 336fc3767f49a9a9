"""Trains a small network with Lightning's Trainer, which runs the backward inside of the optimizer's step."""

import argparse
import os

import lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["noise", "nudge", "unseeded"])
args = parser.parse_args()
rank = int(os.environ["RANK"])


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3))

    def training_step(self, batch, _index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, _index):
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def on_train_batch_end(self, _outputs, _batch, index):
        if args.fault == "nudge" and index == 1 and rank == 2:
            with torch.no_grad():
                self.net[4].bias[0] += 1e-4

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def collate(samples):
    x, y = default_collate(samples)
    if args.fault == "noise" and rank == 1:
        x = x + torch.randn(x.shape, generator=torch.Generator().manual_seed(int.from_bytes(os.urandom(4)))) * 1e-3
    return x, y


if args.fault != "unseeded":
    pl.seed_everything(1, workers=True)
x = torch.arange(48 * 6).reshape(48, 6).float().sin()
data = TensorDataset(x, torch.arange(48) % 3)
trainer = pl.Trainer(
    accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp", max_epochs=2,
    accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(
    Module(),
    DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate),
    DataLoader(TensorDataset(*data[:9]), batch_size=3),
)
