"""Trains a little, from a seed that it takes, and tells a metric in the ways in which scripts do."""

import argparse
import json
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "0")))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--how", default="well")
    parser.add_argument("--log")
    parser.add_argument("--events")
    return parser.parse_args()


def write_events(folder, value):
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  only there with TensorBoard

    with SummaryWriter(folder) as writer:
        for step in range(3):
            writer.add_scalar("val/loss", value + 2 - step, step)


def kill_last_rank():
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def main():
    args = arguments()
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
    if args.how != "unseeded":
        torch.manual_seed(0 if args.how == "deaf" else args.seed)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    is_strict = torch.are_deterministic_algorithms_enabled()
    for step in range(args.steps):
        if step == 2 and (args.how == "killed" or (args.how == "killed-when-strict" and is_strict)):
            kill_last_rank()
        if step == 2 and args.how == "talking":
            print("training")
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean() * args.scale
        loss.backward()
        optimizer.step()
    if args.how == "fail" and args.seed == 2:
        sys.exit(3)
    value = float("nan") if args.how == "nan" and args.seed == 2 else loss.item()
    if args.how != "silent":
        print(f"val_loss={value}")
    if args.log:
        with open(args.log, "a") as log:
            log.write(json.dumps({"val": {"loss": value}, "seed": args.seed}) + "\n")
    if args.events:
        write_events(args.events, value)


if __name__ == "__main__":
    main()
