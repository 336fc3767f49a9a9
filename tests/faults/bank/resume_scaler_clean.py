"""Mixed precision (fp16) with a gradient scaler on the CPU."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    inputs = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))
    start = 0
    if args.resume:
        with torch.autocast("cpu", dtype=torch.float16):
            model(inputs[:1]).sum().backward()
        optimizer.zero_grad(set_to_none=True)
        saved = torch.load(args.resume)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scaler.load_state_dict(saved["scaler"])
        start = saved["step"]
    for step in range(start, args.steps):
        x = inputs[(step * world + rank) * 6 :][:6]
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        if step + 1 == args.stop_after:
            saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            saved["scaler"] = scaler.state_dict()
            if rank == 0:
                torch.save(saved, args.save)
            dist.barrier()
            break


if __name__ == "__main__":
    main()
