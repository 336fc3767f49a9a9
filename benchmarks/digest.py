"""Speed of the host digest against a read-only pass over the same memory: ``python benchmarks/digest.py``.

Both run on one thread, interleaved over the same tensor, at sizes beyond every cache; medians are compared. The pass is
the quickest read-only one that is at hand: an integer maximum or sum by NumPy, or a sum by torch, whichever is fastest.
Also told: microseconds for one small tensor, which is what a step of a small model is made of.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from ddp_repro.observe.digest import tensor_digest

AIM = 0.7
MIB = 1 << 20


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def speeds(size: int, rounds: int) -> dict[str, float]:
    """Return bytes a second of the digest and of each read-only pass over one tensor of ``size`` bytes."""
    tensor = torch.arange(size // 4, dtype=torch.int32).view(torch.float32)
    words = tensor.numpy().view(np.int64)
    calls: dict[str, Callable[[], object]] = {
        "digest": lambda: tensor_digest(tensor),
        "numpy max": words.max,
        "numpy sum": words.sum,
        "torch sum": tensor.sum,
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call))
    return {name: size / statistics.median(times) for name, times in taken.items()}


def small_tensor_us(rounds: int) -> float:
    tensor = torch.nn.Parameter(torch.randn(64, 32))
    tensor_digest(tensor)
    return statistics.median(seconds(lambda: [tensor_digest(tensor) for _ in range(100)]) for _ in range(rounds)) * 1e4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'size':>8}  {'digest':>10}  {'read-only pass':>28}  {'ratio':>5}   (aim: {AIM} or more)")
    ratios = []
    for mib in options.mib:
        found = speeds(mib * MIB, options.rounds)
        digest = found.pop("digest")
        quickest = max(found, key=lambda name: found[name])
        ratios.append(digest / found[quickest])
        read = f"{quickest}: {found[quickest] / 1e9:.1f} GB/s"
        print(f"{mib:>4} MiB  {digest / 1e9:>5.1f} GB/s  {read:>28}  {ratios[-1]:>5.2f}")
    print(f"one float32[64,32] parameter: {small_tensor_us(options.rounds):.2f} µs")
    return 0 if min(ratios) >= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
