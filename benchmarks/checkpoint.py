"""Exact checkpoints against ``torch.save`` and ``torch.load`` of the same state: ``python benchmarks/checkpoint.py``.

A model of linear layers with Adam's state, ``--mib`` in all, saved and loaded in turns; medians are compared.
``torch.save`` writes one file, with and without having it reach the disk; a checkpoint always does, and has digests of
all its files computed. Loading is into a live model and optimizer: ``torch.load`` and both ``load_state_dict``, against
``load_checkpoint``, which verifies all digests first. ``--folder`` is where it is written; memory by default
(``/dev/shm``), as a disk that others use tells of them.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ddp_repro import Progress, load_checkpoint, save_checkpoint

AIM = 1.5
MIB = 1 << 20
WIDTH = 1024


def trained(mib: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model and its Adam, whose parameters and moments are ``mib`` together."""
    layers = max(mib * MIB // (3 * 4 * WIDTH * WIDTH), 1)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def reach_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def calls(folder: Path, mib: int) -> dict[str, Callable[[], object]]:
    model, optimizer = trained(mib)
    plain = folder / "plain.pt"

    def save_plain() -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, plain)

    def save_plain_through() -> None:
        save_plain()
        reach_disk(plain)

    def load_plain() -> None:
        state = torch.load(plain)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    return {
        "torch.save": save_plain,
        "torch.save, fsync": save_plain_through,
        "save_checkpoint": lambda: save_checkpoint(
            folder / "exact", model=model, optimizer=optimizer, progress=Progress(step=1, epoch=0, position=1), keep=1
        ),
        "torch.load": load_plain,
        "load_checkpoint": lambda: load_checkpoint(folder / "exact", model=model, optimizer=optimizer),
    }


def measured(folder: Path, mib: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each call, made in turns after one round that is not counted."""
    made = calls(folder, mib)
    taken: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds + 1):
        for name, call in made.items():
            taken[name].append(seconds(call))
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", default="/dev/shm")  # noqa: S108  chosen for what it is: memory
    options = parser.parse_args()
    torch.set_num_threads(1)
    worst = 0.0
    for mib in options.mib:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = measured(Path(folder), mib, options.rounds)
        print(f"{mib} MiB  " + "  ".join(f"{name} {1e3 * time:.0f} ms" for name, time in found.items()))
        save = found["save_checkpoint"] / found["torch.save, fsync"]
        load = found["load_checkpoint"] / found["torch.load"]
        without = found["save_checkpoint"] / found["torch.save"]
        print(f"{mib} MiB  save {save:.2f} (against one without fsync {without:.2f})  load {load:.2f}  (aim: {AIM})")
        worst = max(worst, save, load)
    return int(worst > AIM)


if __name__ == "__main__":
    sys.exit(main())
