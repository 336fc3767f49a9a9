"""Trains a little, from a seed that it takes, and tells a metric in the ways in which scripts do."""

import argparse
import json
import os
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
    return parser.parse_args()


def main():
    args = arguments()
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
    if args.how != "unseeded":
        torch.manual_seed(0 if args.how == "deaf" else args.seed)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
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


if __name__ == "__main__":
    main()
