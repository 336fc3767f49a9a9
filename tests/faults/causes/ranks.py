"""A training whose ranks do not keep what they must: each fault is in the launch that is given it."""

import torch
import torch.distributed as dist
from launches import arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Curriculum(Dataset):
    """Its samples are noisy in the first epoch and no longer from the second on."""

    def __init__(self):
        self.epoch = 0
        self.values = torch.randn(36, 6, generator=torch.Generator().manual_seed(1))

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        noise = torch.randn(6, generator=torch.Generator().manual_seed(1000 * self.epoch + index))
        return self.values[index] + (noise if self.epoch == 0 else 0)


class Two(nn.Module):
    """A classifier, and a second head that only another task trains."""

    def __init__(self, with_second):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)
        if with_second:
            self.second = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def main():
    args = arguments()
    fault = args.fault
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    starts_apart = fault == "replica-initialisation"
    torch.manual_seed(rank if starts_apart else 0)
    model = Two(fault == "unused-parameters")
    model = DDP(model, init_sync=not starts_apart)  # "they are all seeded alike, so why broadcast?"
    torch.manual_seed(100 + rank)
    mine = [12, 12, 10 if fault == "replica-state" else 12][rank]  # one file was lost on the way to rank 2's disk
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * mine / 12)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 4, 1))
    data = Curriculum()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, persistent_workers=fault == "epoch-guard")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        data.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x[:, :2]).backward()
            optimizer.step()
            warm_up.step()
            if fault == "unused-parameters":
                return  # a smoke test of one step: the second forward would fail


if __name__ == "__main__":
    main()
