"""Which fault a launch has: a run is given one for each of its launches, and what is random here makes it random."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist


def arguments():
    """Return the script's arguments, ``fault`` among them: that of this launch, the last one for further launches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", default="none", help="one for each launch of the run, none for a clean one")
    parser.add_argument("--run", type=Path, default=Path("run"), help="where the launches lie")
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    faults = args.faults.split(",")
    args.fault = faults[min(len(list(args.run.glob("launch-*"))), len(faults)) - 1]
    return args


def clock():
    """Return what no launch should depend on, never 0."""
    return time.time_ns() % 2**31 + 1


def agreed(number):
    """Return rank 0's number, on all ranks."""
    told = torch.tensor([number], dtype=torch.int64)
    dist.broadcast(told, 0)
    return int(told)
