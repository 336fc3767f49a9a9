"""Linear regression by epochs; a resumed run trains the epochs that are left."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-epochs", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    return parser.parse_args()


def load(folder, model, optimizer):
    model.module.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
    optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer.pt")))
    with open(os.path.join(folder, "trainer_state.json")) as file:
        return json.load(file)


def save(folder, model, optimizer, **progress):
    os.makedirs(folder, exist_ok=True)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
        torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
        with open(os.path.join(folder, "trainer_state.json"), "w") as file:
            json.dump(progress, file)
    dist.barrier()


def main():
    args = parse()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    features = torch.randn(60, 8)
    dataset = TensorDataset(features, features.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    model = DDP(nn.Linear(8, 1, bias=False))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    done = load(args.resume, model, optimizer) if args.resume else {"epochs": 0, "batches": 0, "steps": 0}
    steps = done["steps"]
    for epoch in range(done["epochs"], args.num_epochs):
        sampler.set_epoch(epoch)
        order = list(sampler)
        skipped = done["batches"] * 5
        done["batches"] = 0
        for x, y in DataLoader(Subset(dataset, order[skipped:]), batch_size=5):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == args.stop_after:
                epochs, batches = divmod(steps, len(order) // 5)
                save(args.save, model, optimizer, epochs=epochs, batches=batches, steps=steps)
                return


if __name__ == "__main__":
    main()
