"""An MLP whose gradients are reduced in buckets of a chosen size."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def ordered_mean(world, bucket):
    """Sum in the order of the ranks, whatever the bucket."""
    parts = [torch.empty_like(bucket.buffer()) for _ in range(world)]
    work = dist.all_gather(parts, bucket.buffer(), async_op=True)
    return work.get_future().then(lambda _: sum(parts[1:], parts[0]) / world)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(2024)
    data = TensorDataset(torch.randn(144, 40), torch.randint(0, 12, (144,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))
    model = DDP(net, bucket_cap_mb=args.bucket_mb)
    model.register_comm_hook(dist.get_world_size(), ordered_mean)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler.set_epoch(0)
    for _, (x, y) in zip(range(args.steps), loader, strict=False):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.8f}")

    del model, net, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
