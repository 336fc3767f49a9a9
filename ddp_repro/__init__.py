"""Tells whether distributed PyTorch training is reproducible in bits, and where it first differs.

What a training script uses is imported on first use, so that ``import ddp_repro`` costs nothing and commands that
only read files do without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp_repro.calling import Checked, check_script
    from ddp_repro.errors import ReproError
    from ddp_repro.run.checkpoint.loading import load_checkpoint
    from ddp_repro.run.checkpoint.progress import Progress, Restored
    from ddp_repro.run.checkpoint.saving import save_checkpoint
    from ddp_repro.run.data import make_loader
    from ddp_repro.run.determinism import apply_determinism
    from ddp_repro.run.root_seed import generator, seed_everything, seed_training
    from ddp_repro.run.settle import settle_buckets
    from ddp_repro.workload.definition import LoaderRequest, Workload

__all__ = [
    "Checked",
    "LoaderRequest",
    "Progress",
    "ReproError",
    "Restored",
    "Workload",
    "apply_determinism",
    "check_script",
    "generator",
    "load_checkpoint",
    "make_loader",
    "save_checkpoint",
    "seed_everything",
    "seed_training",
    "settle_buckets",
]

_HOME = {
    "Checked": "ddp_repro.calling",
    "LoaderRequest": "ddp_repro.workload.definition",
    "Progress": "ddp_repro.run.checkpoint.progress",
    "ReproError": "ddp_repro.errors",
    "Restored": "ddp_repro.run.checkpoint.progress",
    "Workload": "ddp_repro.workload.definition",
    "apply_determinism": "ddp_repro.run.determinism",
    "check_script": "ddp_repro.calling",
    "generator": "ddp_repro.run.root_seed",
    "load_checkpoint": "ddp_repro.run.checkpoint.loading",
    "make_loader": "ddp_repro.run.data",
    "save_checkpoint": "ddp_repro.run.checkpoint.saving",
    "seed_everything": "ddp_repro.run.root_seed",
    "seed_training": "ddp_repro.run.root_seed",
    "settle_buckets": "ddp_repro.run.settle",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ddp_repro' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
