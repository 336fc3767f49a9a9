"""Several tasks on one trunk; the heads are made from the list of tasks in the checkpoint's config."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TASKS = ["sum", "largest", "mean"]


class MultiTask(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = nn.Linear(9, 15)
        self.heads = nn.ModuleDict({task: nn.Linear(15, 1) for task in tasks})

    def forward(self, x):
        hidden = torch.relu(self.trunk(x))
        return {task: self.heads[task](hidden).squeeze(1) for task in TASKS}


def targets_of(x):
    return {"sum": x.sum(1), "largest": x.amax(1), "mean": x.mean(1)}


def save(folder, model, optimizer, step, config):
    os.makedirs(folder, exist_ok=True)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), f"{folder}/pytorch_model.bin")
        torch.save(optimizer.state_dict(), f"{folder}/optimizer.pt")
        config = {"tasks": config["tasks"], "step": step}
        with open(f"{folder}/config.json", "w") as f:
            json.dump(config, f, indent=2)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    config = {"tasks": TASKS, "step": 0}
    if args.resume:
        with open(f"{args.resume}/config.json") as f:
            config = json.load(f)
    torch.manual_seed(6)
    model = DDP(MultiTask(config["tasks"]), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if args.resume:
        model.module.load_state_dict(torch.load(f"{args.resume}/pytorch_model.bin"))
        optimizer.load_state_dict(torch.load(f"{args.resume}/optimizer.pt"))
    for step in range(config["step"], 8):
        g = torch.Generator().manual_seed(100 * dist.get_rank() + step)
        x = torch.randn(6, 9, generator=g)
        outputs, targets = model(x), targets_of(x)
        loss = sum(nn.functional.mse_loss(outputs[task], targets[task]) for task in TASKS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 == args.stop_after:
            save(args.save, model, optimizer, step + 1, config)
            return


if __name__ == "__main__":
    main()
