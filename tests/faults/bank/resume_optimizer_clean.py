"""An autoencoder; what is saved are its weights and where it was."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 8), nn.ReLU())
        self.decoder = nn.Linear(8, 20)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def batches(start, stop, rank, world):
    for step in range(start, stop):
        g = torch.Generator().manual_seed(step * world + rank)
        yield step, torch.rand(7, 20, generator=g)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=8)
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(AutoEncoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    start = 0
    if args.resume:
        model(torch.rand(2, 20)).sum().backward()
        optimizer.zero_grad()
        saved = torch.load(args.resume)
        model.module.load_state_dict(saved["weights"])
        optimizer.load_state_dict(saved["moments"])
        start = saved["step"]
    for step, x in batches(start, args.max_steps, rank, world):
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 == args.stop_after:
            if rank == 0:
                saved = {"weights": model.module.state_dict(), "step": step + 1}
                saved["moments"] = optimizer.state_dict()
                torch.save(saved, args.save)
            dist.barrier()
            break
    print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
