"""A training script with a Hydra configuration."""

import gc
from dataclasses import dataclass

import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Config:
    lr: float = 0.1
    batch_size: int = 4
    seed: int = 1234


TRAIN = {
    "defaults": ["base", "_self_", {"override hydra/job_logging": "none"}],
    "hydra": {"run": {"dir": "."}, "output_subdir": None},
}
ConfigStore.instance().store(name="train", node=TRAIN)
ConfigStore.instance().store(name="base", node=Config)


@hydra.main(version_base=None, config_path=None, config_name="train")
def main(cfg):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(72, 5)
    data = TensorDataset(x, x.prod(1, keepdim=True))
    sampler = DistributedSampler(data, seed=cfg.seed)
    loader = DataLoader(data, batch_size=cfg.batch_size, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()}: seed {cfg.seed}, loss {loss.item():.5f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
