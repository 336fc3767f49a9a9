"""Points that are jittered by the data set; every random state is saved and put back."""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Jittered(Dataset):
    def __init__(self, count=60):
        points = np.random.RandomState(4).randn(count, 5)
        self.points = torch.tensor(points, dtype=torch.float32)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        point = self.points[index]
        return point + 0.1 * torch.randn(5), (point[0] * point[1]).reshape(1)


def rng_state():
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}


def set_rng_state(state):
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(rank)
    np.random.seed(rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 20), nn.SiLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    data = Jittered()
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=5, sampler=sampler, generator=torch.Generator())
    torch.manual_seed(rank)

    step, rng = 0, None
    if args.resume:
        model(torch.ones(1, 5)).sum().backward()
        optimizer.zero_grad(set_to_none=True)
        saved = torch.load(f"{args.resume}.{rank}", weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, rng = saved["step"], saved["rng"]

    for epoch in range(step // len(loader), 3):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(step % len(loader)):
            next(batches)
        if rng is not None:
            set_rng_state(rng)
            rng = None
        for inputs, targets in batches:
            loss = nn.functional.smooth_l1_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.stop_after:
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save({**saved, "rng": rng_state()}, f"{args.save}.{rank}")
                return


if __name__ == "__main__":
    main()
