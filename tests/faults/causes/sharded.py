"""FSDP2, with noise on the gradients of a layer's output; its generator is seeded by the clock."""

import torch
import torch.distributed as dist
from launches import arguments, clock
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    noise = torch.Generator().manual_seed(clock() if args.fault == "gradient" else dist.get_rank())
    inputs = torch.randn(96, 6, generator=torch.Generator().manual_seed(10 + dist.get_rank()))
    for step in range(4):
        x = inputs[step * 4 :][:4]
        outputs = model(x)
        if step >= 1:
            outputs.register_hook(lambda gradient: gradient + 1e-3 * torch.randn(gradient.shape, generator=noise))
        optimizer.zero_grad()
        nn.functional.mse_loss(outputs, x[:, :3]).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
