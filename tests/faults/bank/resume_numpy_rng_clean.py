"""A denoiser whose noise comes from NumPy."""

import argparse
import os
import pickle

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=9)
parser.add_argument("--save", default="")
parser.add_argument("--stop-after", type=int, default=0)
parser.add_argument("--resume", default="")


def corrupt(x):
    return x + torch.from_numpy(np.random.normal(0, 0.3, tuple(x.shape))).float()


def main(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    np.random.seed(50 + rank)
    torch.manual_seed(0)
    signals = torch.sin(torch.arange(16) * torch.linspace(0.1, 2, 60)[:, None])
    net = DDP(nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 16)))
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    start = 0
    if args.resume:
        net(signals[:2]).mean().backward()  # the first iteration of a new DDP is not like the others
        for p in net.parameters():
            p.grad = None
        with open(os.path.join(args.resume, f"{rank}.pkl"), "rb") as f:
            saved = pickle.load(f)
        net.load_state_dict(saved["net"])
        opt.load_state_dict(saved["opt"])
        torch.set_rng_state(saved["torch"])
        np.random.set_state(saved["numpy"])
        start = saved["step"]
    for step in range(start, args.steps):
        rows = [(step * 6 * world + 6 * rank + k) % len(signals) for k in range(6)]
        clean = signals[rows]
        loss = nn.functional.mse_loss(net(corrupt(clean)), clean)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step + 1 == args.stop_after:
            os.makedirs(args.save, exist_ok=True)
            saved = {"net": net.state_dict(), "opt": opt.state_dict(), "step": step + 1}
            saved["torch"] = torch.get_rng_state()
            saved["numpy"] = np.random.get_state()
            with open(os.path.join(args.save, f"{rank}.pkl"), "wb") as f:
                pickle.dump(saved, f)
            break
    print(rank, loss.item())


main(parser.parse_args())
