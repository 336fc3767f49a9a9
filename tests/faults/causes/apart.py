"""Ranks that are not set up alike: threads, packages, processors, folders named by the clock."""

import ctypes
import os
import re
import sys
import tempfile
from pathlib import Path

import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore
from launches import arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ARGS = arguments()
RANK = int(os.environ["RANK"])
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
FOLDER = "outputs/${now:%H-%M-%S-%f}" if ARGS.fault != "none" else "outputs"
HYDRA = {"run": {"dir": FOLDER}, "output_subdir": None}
TRAIN = {"defaults": ["_self_", {"override hydra/job_logging": "none"}], "lr": 0.1, "hydra": HYDRA}
ConfigStore.instance().store(name="train", node=TRAIN)


def own_packages():
    """Put a folder of this node's own packages first, with an older SciPy."""
    packages = Path(tempfile.mkdtemp())
    told = packages / "scipy-1.7.0.dist-info" / "METADATA"
    told.parent.mkdir()
    told.write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 1.7.0\n")
    sys.path.insert(0, str(packages))


def other_processor():
    """Have this process see the processor of an older node: by a mount that no other process sees, where it may."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        return
    told = Path(tempfile.mkdtemp()) / "cpuinfo"
    known = Path("/proc/cpuinfo").read_text()
    told.write_text(re.sub(r"(?m)^model name.*$", "model name\t: An Older Processor", known))
    libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    assert libc.mount(str(told).encode(), b"/proc/cpuinfo", None, MS_BIND, None) == 0, os.strerror(ctypes.get_errno())


def set_up():
    if RANK == 0:
        torch.set_num_threads(2)  # it writes the logs as well
    if RANK == 1:
        other_processor()
    if RANK == 2:
        own_packages()


@hydra.main(version_base=None, config_path=None, config_name="train")
def main(cfg):
    if ARGS.fault != "none":
        set_up()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    inputs = torch.randn(60, 6, generator=torch.Generator().manual_seed(RANK))
    for step in range(4):
        x = inputs[step * 4 :][:4]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()


if __name__ == "__main__":
    sys.argv[1:] = []  # Hydra reads the rest of the line
    main()
