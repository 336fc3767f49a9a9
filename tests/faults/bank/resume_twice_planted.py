"""An epoch that may be stopped more than once."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build():
    torch.manual_seed(2)
    x = torch.randn(96, 6)
    dataset = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).float())
    model = DDP(nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 1)), find_unused_parameters=True)
    return dataset, model, torch.optim.Adamax(model.parameters(), lr=4e-3)


def remaining(loader, skip):
    for number, batch in enumerate(loader):
        if number >= skip:
            yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dataset, model, optimizer = build()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    epoch, skip, step = 0, 0, 0
    if args.resume:
        state = torch.load(args.resume)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epoch, skip, step = state["epoch"], state["skip"], state["step"]
    while epoch < 2:
        sampler.set_epoch(epoch)
        for batch, (x, y) in enumerate(remaining(loader, skip)):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.stop_after:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save({**state, "epoch": epoch, "skip": batch + 1}, args.save) if dist.get_rank() == 0 else None
                dist.barrier()
                return
        epoch, skip = epoch + 1, 0


if __name__ == "__main__":
    main()
