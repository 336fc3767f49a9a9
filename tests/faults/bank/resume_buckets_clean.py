"""Everything that can be saved is saved; the model takes several of DDP's buckets."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def first_backward(model, x, y):
    """A new DDP lays out its buckets in its first backward: do that one before the state is loaded."""
    nn.functional.cross_entropy(model(x), y).backward()
    for parameter in model.parameters():
        parameter.grad = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(72, 32)
    data = TensorDataset(x, x[:, :5].argmax(1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    layers = [
        nn.Linear(32, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 5),
    ]
    model = DDP(nn.Sequential(*layers), bucket_cap_mb=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    step = 0
    if args.resume:
        first_backward(model, *next(iter(loader)))
        state = torch.load(f"{args.resume}.{dist.get_rank()}")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        step = state["step"]
        torch.set_rng_state(state["rng"])
    for epoch in range(step // len(loader), 3):
        sampler.set_epoch(epoch)
        rng = torch.get_rng_state()
        batches = enumerate(loader)
        for number, (inputs, targets) in batches:
            if number < step % len(loader) and epoch == step // len(loader):
                torch.set_rng_state(rng)
                continue
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step == args.stop_after:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                state |= {"scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}
                torch.save(state, f"{args.save}.{dist.get_rank()}")
                return


if __name__ == "__main__":
    main()
