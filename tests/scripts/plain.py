"""A plain training script, as people write them; --dump tells how it was started."""

import argparse
import json
import logging
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from widths import INPUTS

parser = argparse.ArgumentParser()
parser.add_argument("--lr", default="0.1")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--name")
parser.add_argument("--threads", type=int)
parser.add_argument("--dump", type=Path)


def main() -> None:
    args = parser.parse_args()
    if args.dump is not None:
        tell(args.dump)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    logging.basicConfig(format="configured by the script: %(message)s", level=logging.INFO)
    torch.backends.cudnn.benchmark = True
    dist.init_process_group("gloo")
    logging.info("joined")
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, INPUTS), torch.randn(24, 2))
    model = DistributedDataParallel(nn.Linear(INPUTS, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(args.lr))
    sampler = DistributedSampler(data)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=2, sampler=sampler, num_workers=1):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def tell(folder: Path) -> None:
    told = {
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "path": sys.path[0],
        "name": __name__,
        "file": __file__,
        "environ": dict(os.environ),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "drawn": random.random(),
        "hash_seed": sys.flags.hash_randomization,
        "root_handlers": len(logging.getLogger().handlers),
    }
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
