"""A sampler that can begin in the middle of its epoch."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ResumableSampler(DistributedSampler):
    def __init__(self, dataset, **options):
        super().__init__(dataset, **options)
        self.consumed = 0

    def __iter__(self):
        order = list(super().__iter__())
        consumed = self.consumed
        self.consumed = 0
        yield from order[consumed:]


class Spirals(TensorDataset):
    def __init__(self, count=72):
        t = torch.linspace(0.2, 3, count // 2)
        arm = torch.stack([t * torch.cos(3 * t), t * torch.sin(3 * t)], dim=1)
        super().__init__(torch.cat([arm, -arm]), torch.arange(count) // (count // 2))


def save(path, model, optimizer, epoch, batch, step):
    if dist.get_rank() == 0:
        progress = {"epoch": epoch, "batch": batch, "step": step}
        torch.save([model.module.state_dict(), optimizer.state_dict(), progress], path)
    dist.barrier()


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2)), find_unused_parameters=True)
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)
    dataset = Spirals()
    sampler = ResumableSampler(dataset, shuffle=True, seed=1)
    loader = DataLoader(dataset, batch_size=6, sampler=sampler)
    first, step = 0, 0
    if args.resume:
        weights, moments, progress = torch.load(args.resume)
        model.module.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        first, step = progress["epoch"], progress["step"]
        sampler.consumed = progress["batch"] * 6
    for epoch in range(first, 3):
        sampler.set_epoch(epoch)
        begun = sampler.consumed // 6
        for batch, (points, arms) in enumerate(loader, start=begun):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(points), arms).backward()
            optimizer.step()
            step += 1
            if step == args.stop_after:
                done = (epoch + 1, 0) if batch == 3 else (epoch, batch + 1)
                return save(args.save, model, optimizer, *done, step)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    main(parser.parse_args())
