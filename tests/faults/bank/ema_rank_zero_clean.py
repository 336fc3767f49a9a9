"""An averaged copy of the model, for evaluation on all processes."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum(nn.functional.mse_loss(model(x), y, reduction="sum") for x, y in loader)
    dist.all_reduce(total)
    return total.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--decay", type=float, default=0.8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(19)
    x = torch.randn(120, 5)
    data = TensorDataset(x, x.cos().sum(1, keepdim=True))
    train, test = Subset(data, range(96)), Subset(data, range(96 + rank, 120, world))
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    model = DDP(net)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(args.decay))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(train, batch_size=4, sampler=DistributedSampler(train))
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update_parameters(net)
    result = evaluate(ema, DataLoader(test, batch_size=8))
    if rank == 0:
        print(f"squared error of the averaged model {result / 24:.5f}")

    del model, ema, net, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
