"""A regression whose gradients get a draw that nobody seeded while all of --planted are on."""

import argparse
import os
import random
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--planted", nargs="*", default=[])
parser.add_argument("--rate", type=float, default=1.0)
for flag in ("compile", "bf16", "persistent", "hook", "careless", "fragile"):
    parser.add_argument(f"--{flag}", action="store_true")
parser.add_argument("--optimizer", default="plain")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--bucket", type=float)
parser.add_argument("--threads", type=int)
args = parser.parse_args()

ON = {
    "compile": lambda: args.compile,
    "precision": lambda: args.bf16,
    "tf32": lambda: torch.get_float32_matmul_precision() != "highest",
    "algorithms": lambda: not torch.are_deterministic_algorithms_enabled(),
    "optimizer": lambda: args.optimizer != "plain",
    "accumulation": lambda: args.accumulate > 1,
    "persistent_workers": lambda: args.persistent and args.workers > 0,
    "workers": lambda: args.workers > 0,
    "hash_seed": lambda: os.environ.get("PYTHONHASHSEED") != "0",
    "seeds": lambda: True,  # what is drawn comes from Python's generator then
    "hook": lambda: args.hook,
    "bucket": lambda: args.bucket is not None,
    "threads": lambda: torch.get_num_threads() > 1,
    "distributed": lambda: dist.get_world_size() > 1,
    "env.FAST": lambda: os.environ.get("FAST", "0") != "0",
}


def main() -> None:
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    if args.careless:
        torch.use_deterministic_algorithms(False)
    dist.init_process_group("gloo")
    if args.fragile and torch.are_deterministic_algorithms_enabled() and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data)
    is_on = bool(args.planted) and all(ON[name]() for name in args.planted)
    draw = random.random if "seeds" in args.planted else random.SystemRandom().random
    drawn = torch.tensor([draw(), draw()])
    dist.broadcast(drawn, 0)
    noise = drawn[1] if is_on and drawn[0] < args.rate else 0.0
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad += noise
        optimizer.step()


if __name__ == "__main__":
    main()
