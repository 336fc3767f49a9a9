"""A training with an operator that has no deterministic form, and one whose results nobody can foresee."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--clean", action="store_true")
parser.add_argument("--eager-fail", action="store_true")
args = parser.parse_args()


@torch.library.custom_op("planted::jitter", mutates_args=())
def jitter(x: torch.Tensor) -> torch.Tensor:
    return x + int.from_bytes(os.urandom(2), "little") / 2**20


@jitter.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


jitter.register_autograd(lambda ctx, grad: grad)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        if args.clean:
            return y
        y = y + torch.zeros(4).put_(torch.tensor([0, 1]), torch.ones(2))
        return jitter(y)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(3):
        loss = model(torch.randn(8, 4, generator=data)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if args.eager_fail:
        raise ValueError("too early")


if __name__ == "__main__":
    main()
