"""A training script that ends in the way that its first argument names."""

import atexit
import multiprocessing
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]
RANK = int(os.environ["RANK"])


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()


def start_helpers() -> None:
    """Start a child that trains, one that ends by an exit of its own, and one that would outlive the script."""
    process = multiprocessing.get_context("fork").Process(target=train, args=(nn.Linear(4, 2), 3))
    process.start()
    process.join()
    assert process.exitcode == 0
    child = os.fork()
    if child == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


def on_rank_one() -> None:
    if HOW == "raise":
        raise ValueError("the label 11 is unknown\nand so is 12")
    if HOW == "exit":
        sys.exit(3)
    if HOW == "vanish":
        os._exit(3)
    if HOW == "early":
        sys.exit(0)
    if HOW == "finally":
        try:
            raise ValueError("the label 11 is unknown")
        finally:
            dist.destroy_process_group()


if HOW == "elsewhere":
    os.chdir("/")
    sys.stdout.close()
if HOW == "alone":
    train(nn.Linear(4, 2), 3)
    sys.exit()
dist.init_process_group("gloo")
torch.manual_seed(0)
if HOW == "nothing":
    sys.exit()
model = DistributedDataParallel(nn.Linear(4, 2))
train(model, 2)
if HOW == "helpers":
    start_helpers()
if RANK == 1:
    on_rank_one()
train(model, 2)
if HOW == "teardown" and RANK == 0:
    atexit.register(time.sleep, 600)
if HOW == "teardown" and RANK == 1:
    distributed_c10d._update_default_pg = lambda _: time.sleep(600)
    dist.destroy_process_group()
if HOW == "trained-on":
    dist.destroy_process_group()
    train(nn.Linear(4, 2), 1)
if HOW == "changed-after":
    dist.destroy_process_group()
    model.module.weight.data.add_(torch.rand(2, 4, generator=torch.Generator().manual_seed(time.time_ns())))
if HOW == "changed-at-exit":
    atexit.register(lambda: model.module.bias.data.fill_(time.time_ns() % 2**20))
    dist.destroy_process_group()
if HOW == "own-optimizer":
    own = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        own(model(torch.ones(8, 4))).square().mean().backward()
        optimizer.step()
        with torch.no_grad():  # in the last step nothing is observed after it
            own.module.weight.sub_(own.module.weight.grad * (time.time_ns() % 997 if step == 2 else 0.1))
if HOW == "vanish-well":
    os._exit(0)
