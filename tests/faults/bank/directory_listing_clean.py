"""The processes prepare chunks in a shared scratch folder, then all train on them."""

import argparse
import gc
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def prepare(folder, chunks, rank, world):
    for chunk in range(rank, chunks, world):
        rows = np.random.default_rng(chunk).normal(size=(4, 7)).astype(np.float32)
        np.save(folder / f"{chunk:05d}.npy", rows)


def load(folder):
    files = sorted(path for path in folder.iterdir() if path.suffix == ".npy")
    return TensorDataset(torch.from_numpy(np.concatenate([np.load(path) for path in files])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=18)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    shared = [tempfile.mkdtemp(prefix="chunks-") if rank == 0 else None]
    dist.broadcast_object_list(shared)
    folder = Path(shared[0])
    prepare(folder, args.chunks, rank, world)
    dist.barrier()
    data = load(folder)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)

    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DDP(nn.Sequential(nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 7)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"[{rank}] {loss.item():.6f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
