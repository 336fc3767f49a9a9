"""Convolutions with BatchNorm; a checkpoint holds what is trained."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    images = torch.rand(48, 1, 6, 6)
    dataset = TensorDataset(images, (images.mean((1, 2, 3)) * 6).long().clamp(0, 2))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    net = network()
    model = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if args.resume:
        state = torch.load(args.resume)
        net.load_state_dict(state["parameters"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    seen = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            seen += 1
            if seen <= step:
                continue
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if seen == args.stop_after:
                if dist.get_rank() == 0:
                    state = {"parameters": {name: p.detach() for name, p in net.named_parameters()}}
                    state.update(optimizer=optimizer.state_dict(), step=seen)
                    torch.save(state, args.save)
                dist.barrier()
                return


if __name__ == "__main__":
    main()
