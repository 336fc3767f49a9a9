"""The values that keys of the configuration take by name."""

from enum import Enum


class Reseed(Enum):
    """From what a sample's augmentation is drawn: its own index, or its loader worker's stream."""

    sample = "sample"
    worker = "worker"


class Precision(Enum):
    """Arithmetic of forward and loss: float32, or bfloat16 autocast."""

    fp32 = "fp32"
    bf16 = "bf16"


class OptimizerForm(Enum):
    """How an optimizer's step is computed: tensor by tensor, over lists of tensors, or in one fused kernel."""

    plain = "plain"
    foreach = "foreach"
    fused = "fused"


class Hook(Enum):
    """DDP's stock communication hooks: the mean by hand, or reduced in float16."""

    allreduce = "allreduce"
    fp16_compress = "fp16_compress"


class Backend(Enum):
    """The process group's backend; ``auto`` is NCCL where every local rank has a GPU, else gloo."""

    auto = "auto"
    gloo = "gloo"
    nccl = "nccl"


class CaptureLevel(Enum):
    """How much of a launch is observed."""

    step = "step"
    module = "module"
    op = "op"
    off = "off"


class KeptPart(Enum):
    """Of which part of a step operators' tensors are kept in files, with ``capture=op``."""

    none = "none"
    forward = "forward"
    backward = "backward"
    optimizer = "optimizer"


class Seeding(Enum):
    """Whether a script's process is seeded before the script starts; a built-in workload always is."""

    leave = "leave"
    inject = "inject"


class BoundaryCapture(Enum):
    """Before which steps all that a step starts from is recorded: none, the first that is taken, or every one."""

    none = "none"
    first = "first"
    every = "every"


class EpochGuard(Enum):
    """What is done where a shuffling sampler is trained on again without ``set_epoch``."""

    report = "report"
    error = "error"
    fix = "fix"


class Stop(Enum):
    """How a training is stopped: in order, after a checkpoint, or by SIGKILL between two of them."""

    clean = "clean"
    kill = "kill"


class GoldenLevel(Enum):
    """What a golden keeps: one digest for each rank, step and phase, or every observation."""

    step = "step"
    full = "full"


class Better(Enum):
    """Which way a metric is better."""

    higher = "higher"
    lower = "lower"


class Take(Enum):
    """Which of the values that a launch gave of its metric counts."""

    last = "last"
    max = "max"
    min = "min"
