"""Stops and goes on: its split is drawn once with NumPy, and a scheduler that is made last sets the learning rate."""

import numpy as np
import torch
import torch.distributed as dist
from launches import arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, BATCH = 8, 4


def main():
    args = arguments()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    np.random.seed(rank)
    inputs = torch.randn(48, 6)
    model = DDP(nn.Linear(6, 2, bias=False))
    step, state = 0, torch.load(f"{args.resume}-{rank}") if args.resume else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if state is not None and args.fault != "none":
        optimizer.load_state_dict(state["optimizer"])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.9**done)
    if state is None or args.fault == "none":
        split = np.random.permutation(24)
    else:
        split = state["split"].numpy()  # nothing is drawn a second time
    if state is not None:
        model.load_state_dict(state["model"])
        if args.fault == "none":
            optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        step = state["step"]
    own = inputs[rank::world]
    while step < STEPS:
        x = own[split[step * BATCH % len(own) :][:BATCH] % len(own)]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step == args.stop_after:
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**state, "step": step, "split": torch.from_numpy(split)}, f"{args.save}-{rank}")
            break


if __name__ == "__main__":
    main()
