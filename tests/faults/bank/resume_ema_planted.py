"""An exponential average of the weights, kept beside the model."""

import argparse
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Average:
    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.module.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - self.decay)


def evaluate(module):
    with torch.no_grad():
        return module(torch.eye(6)).std().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    start, saved = 0, None
    if args.resume:
        saved = torch.load(os.path.join(args.resume, "last.ckpt"))
        net.load_state_dict(saved["net"])
        start = saved["step"]
    ema = Average(net)
    model = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    if saved:
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(start, 8):
        g = torch.Generator().manual_seed(1 + 10 * step + dist.get_rank())
        x = torch.randn(4, 6, generator=g)
        loss = nn.functional.mse_loss(model(x), x[:, :3].sort(dim=1).values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(net)
        if step + 1 == args.stop_after:
            os.makedirs(args.save, exist_ok=True)
            saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            if dist.get_rank() == 0:
                torch.save(saved, os.path.join(args.save, "last.ckpt"))
            dist.barrier()
            return
    print("average:", evaluate(ema.module))


if __name__ == "__main__":
    main()
