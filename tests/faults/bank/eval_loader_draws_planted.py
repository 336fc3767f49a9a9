"""A classifier with dropout, evaluated every few steps."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(14)
    x, y = torch.randn(144, 10), torch.randint(0, 3, (144,))
    train, test = TensorDataset(x[:96], y[:96]), TensorDataset(x[96:], y[96:])
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=4, sampler=sampler)
    test_loader = DataLoader(test, batch_size=16)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3)))
    torch.manual_seed(1400 + dist.get_rank())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sampler.set_epoch(0)
    for step, (inputs, labels) in enumerate(train_loader, start=1):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.eval_every and step % args.eval_every == 0:
            result = evaluate(model, test_loader)
            if dist.get_rank() == 0:
                print(f"step {step}: accuracy {result:.3f}")
        if step == args.steps:
            break

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
