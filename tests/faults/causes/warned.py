"""A training in which all may be meant so, or be a mistake: samplers of the user's own, an average at the end."""

import torch
import torch.distributed as dist
from launches import arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset


class Own(Sampler):
    def __init__(self, data):
        self.size, self.num_replicas, self.rank = len(data), dist.get_world_size(), dist.get_rank()
        self.shuffle = False

    def order(self):
        return torch.arange(self.size)

    def __iter__(self):
        return iter(self.order()[self.rank :: self.num_replicas].tolist())

    def __len__(self):
        return len(self.order()[self.rank :: self.num_replicas])


class Halved(Own):
    """The first half: it was to be a short trial."""

    def order(self):
        return super().order()[: self.size // 2]


class Doubled(Own):
    """Each sample twice, for two augmentations that nobody makes any more."""

    def order(self):
        return super().order().repeat_interleave(2)


def loaders(data, fault):
    if fault == "none":
        for seed in range(3):
            yield DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=seed))
        return
    yield DataLoader(data, batch_size=4, sampler=Halved(data))
    yield DataLoader(data, batch_size=4, sampler=Doubled(data))
    yield DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(dist.get_rank()))


def main():
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 6))
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)))
    average = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for loader in loaders(data, args.fault):
        for (x,) in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x[:, :2]).backward()
            optimizer.step()
            for mean, parameter in zip(average, model.parameters()):
                mean.lerp_(parameter.detach(), 0.1)
    if dist.get_rank() == 0 and args.fault != "none":  # rank 0 alone evaluates and saves
        with torch.no_grad():
            for mean, parameter in zip(average, model.parameters()):
                parameter.copy_(mean)


if __name__ == "__main__":
    main()
