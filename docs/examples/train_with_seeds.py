"""Your own training script, seeded by ddp_repro: torchrun --standalone --nproc-per-node 2 train_with_seeds.py."""

import os

import torch
import torch.distributed as dist
from curve import Curve
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddp_repro


def main() -> None:
    """Train for three epochs and show each rank's sum of parameters in all its bits."""
    ddp_repro.apply_determinism("debug", hash_seed=None)
    ddp_repro.seed_everything(17)  # before the model: all ranks build the same one
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 1)))
    ddp_repro.seed_training()  # after the model: each rank drops units of its own
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = ddp_repro.make_loader(Curve(1000, error=0.1), batch_size=32, num_workers=2)
    for epoch in range(3):  # the loader counts epochs as well: no set_epoch to forget
        noise = ddp_repro.generator("input noise", epoch=epoch)
        for x, y in loader:
            noisy = x + 0.01 * torch.randn(x.shape, generator=noise)
            loss = nn.functional.mse_loss(model(noisy), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    total = float(sum(parameter.detach().double().sum() for parameter in model.parameters()))
    print(f"rank {dist.get_rank()}: {total.hex()}", flush=True)  # noqa: T201 - a script's own output
    dist.barrier()
    os._exit(0)  # gloo can abort at interpreter exit in torch 2.13, after all is done


if __name__ == "__main__":
    main()
