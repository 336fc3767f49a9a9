"""A training whose launches do not all give the same bits: each fault is in the launch that is given it."""

import numpy as np
import torch
import torch.distributed as dist
from launches import agreed, arguments, clock
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FEATURES, LENGTH = 6, 4


class Sequences(Dataset):
    def __init__(self, size):
        self.values = torch.randn(size, LENGTH, FEATURES, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


class Padded:
    """Pads sequences to a length that is drawn anew for each batch, as images are scaled to several sizes."""

    def __init__(self, fault):
        self.sizes = np.random.default_rng(clock()) if fault == "other-spec" else None

    def __call__(self, samples):
        batch = torch.stack(samples)
        longer = 1 + int(self.sizes.integers(4)) if self.sizes is not None else 0
        return nn.functional.pad(batch, (0, 0, 0, longer))


class Counting(nn.Module):
    """Keeps when it was last called, or how often."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.register_buffer("called", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.called += clock() if self.fault == "buffers" else 1
        return x.sum(1)


class Rounding(torch.optim.SGD):
    """Keeps its momentum in half precision, rounded up or down by chance so that the mean is right."""

    def __init__(self, parameters, seed):
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self.chance = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        for state in self.state.values():
            kept = state["momentum_buffer"]
            noise = torch.rand(kept.shape, generator=self.chance) - 0.5
            kept.copy_((kept + kept.abs() * 2**-8 * noise).bfloat16())
        return loss


def main():
    args = arguments()
    fault = args.fault
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = Sequences(40 if fault == "data-source" else 37)  # another job has added to the folder
    order = agreed(clock()) if fault == "data-order" else 0
    sampler = DistributedSampler(data, seed=order)
    loader = DataLoader(data, batch_size=4, sampler=sampler, collate_fn=Padded(fault))
    model = DDP(nn.Sequential(Counting(fault), nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 2)))
    torch.manual_seed(100 + rank)
    optimizer = Rounding(model.parameters(), agreed(clock()) if fault == "optimizer-state" else 0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            scaler.scale(nn.functional.mse_loss(model(x), x.sum(1)[:, :2])).backward()
            if step == 2 and fault == "hyperparameters":  # what a step took, say
                optimizer.param_groups[0]["lr"] *= 1 + agreed(clock()) / 2**32
            scaler.step(optimizer)
            is_short_of_memory = step == 3 and fault == "loss-scale"
            scaler.update(256.0 if is_short_of_memory else None)
            if step == 1 and fault == "observation":  # a plateau that was measured in seconds
                for state in optimizer.state.values():
                    state["momentum_buffer"].zero_()
            step += 1


if __name__ == "__main__":
    main()
