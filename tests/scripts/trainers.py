"""Small trainers of several kinds, each a few steps; one behaves differently where it sees that it is watched."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def batches():
    data = TensorDataset(torch.randn(48, 6), torch.randint(3, (48,)))
    return DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))


def train(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def plain():
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x, y in batches():
        train(model, optimizer, x, y)


def looks():
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches():
        watched = any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
        train(model, optimizer, x * 2 if watched else x, y)


def fsdp():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for x, y in batches():
        train(model, optimizer, x, y)


def zero():
    model = DDP(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    for x, y in batches():
        train(model, optimizer, x, y)


def gan():
    """Both models have the same number of tensors."""
    generator, discriminator = DDP(nn.Linear(3, 6)), DDP(nn.Linear(6, 1))
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in (generator, discriminator)]
    for x, _ in batches():
        made = generator(torch.randn(len(x), 3))
        optimizers[1].zero_grad()
        (discriminator(made.detach()).mean() - discriminator(x).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        discriminator(made).mean().neg().backward()
        optimizers[0].step()


def hook():
    model = DDP(net())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches():
        train(model, optimizer, x, y)


def alone():
    """Rank 0 alone keeps an averaged copy and uses it, with a model whose buffers the ranks hold differently."""
    model = DDP(net())
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        train(model, optimizer, x, y)
        if dist.get_rank() == 0:
            average.update_parameters(model.module)
            average.eval()(x)


def teacher():
    """All ranks learn from an average of the model, which has buffers of each rank's own."""
    model = DDP(net())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, _ in batches():
        with torch.no_grad():
            target = average(x)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        average.update_parameters(model)


def folds():
    """One model after the other, each gone before the next one is made."""
    for _ in range(3):
        plain()


CASES = {case.__name__: case for case in (plain, looks, fsdp, zero, gan, hook, alone, teacher, folds)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    CASES[args.case]()


if __name__ == "__main__":
    main()
