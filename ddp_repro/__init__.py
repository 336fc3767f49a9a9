"""Tells whether distributed PyTorch training is reproducible in bits, and where it first differs.

What a training script uses is imported on first use, so that ``import ddp_repro`` costs nothing and commands that
only read files do without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp_repro.errors import ReproError
    from ddp_repro.run.data import make_loader
    from ddp_repro.run.determinism import apply_determinism
    from ddp_repro.run.root_seed import generator, seed_everything, seed_training
    from ddp_repro.workload.definition import LoaderRequest, Workload

__all__ = [
    "LoaderRequest",
    "ReproError",
    "Workload",
    "apply_determinism",
    "generator",
    "make_loader",
    "seed_everything",
    "seed_training",
]

_HOME = {
    "LoaderRequest": "ddp_repro.workload.definition",
    "ReproError": "ddp_repro.errors",
    "Workload": "ddp_repro.workload.definition",
    "apply_determinism": "ddp_repro.run.determinism",
    "generator": "ddp_repro.run.root_seed",
    "make_loader": "ddp_repro.run.data",
    "seed_everything": "ddp_repro.run.root_seed",
    "seed_training": "ddp_repro.run.root_seed",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ddp_repro' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
