"""What makes a launch: the schema that `record` fills and every rank reads back."""

from dataclasses import dataclass, field
from typing import Any

from ddp_repro.config.choices import (
    Backend,
    BoundaryCapture,
    CaptureLevel,
    EpochGuard,
    Hook,
    KeptPart,
    OptimizerForm,
    Precision,
    Reseed,
    Seeding,
)
from ddp_repro.run.determinism import Determinism


@dataclass(kw_only=True)
class CaptureConfig:
    """What is observed of each launch.

    ``boundary`` says before which steps all that a step starts from is recorded, for runs that are stopped there;
    with ``boundary_at`` before these (optimizer steps done before them).

    ``steps`` are the first and the last step (optimizer steps done before it) whose modules and operators are observed;
    empty: all. Their rows take at most ``limit_mb`` a rank. ``keep`` says of which part of those steps operators'
    tensors are kept in files, within ``keep_mb`` a step and rank (both in MiB). With ``survey``, which the command of
    that name sets, operators are not recorded, but run again so many times.

    With ``timing`` each rank leaves when its steps ended and how much memory it took, in ``rank-<r>.timing.json``.
    """

    level: CaptureLevel = CaptureLevel.step
    steps: list[int] = field(default_factory=list)
    limit_mb: int = 1024
    keep: KeptPart = KeptPart.none
    keep_mb: int = 256
    survey: int = 0
    boundary: BoundaryCapture = BoundaryCapture.none
    boundary_at: list[int] = field(default_factory=list)
    timing: bool = False


@dataclass(kw_only=True)
class CheckpointConfig:
    """When the built-in training saves, and from what it goes on; counted in optimizer steps.

    A checkpoint is saved in ``dir`` after every ``every`` steps, after each step of ``at``, and after step ``stop``, at
    ``load`` names a checkpoint, or a folder whose newest one is loaded. ``keep`` are kept.
    ``allow`` names identity fields in which the run that goes on may differ: then it is not exact, which is said.
    """

    dir: str | None = None
    every: int | None = None
    at: list[int] = field(default_factory=list)
    stop: int | None = None
    keep: int = 2
    load: str | None = None
    allow: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class DataConfig:
    """How samples reach a rank; ``num_workers`` counts DataLoader workers a rank."""

    num_workers: int = 0
    persistent_workers: bool = False
    reseed: Reseed = Reseed.sample


@dataclass(kw_only=True)
class TrainConfig:
    """The training loop; ``max_steps`` counts optimizer steps and ends the run in mid-epoch.

    With ``grad_scaler`` the loss is scaled by ``torch.amp.GradScaler``, with ``compile`` the model is compiled.
    ``optimizer`` is the form of the optimizer's step; None leaves it as the workload has it.
    """

    epochs: int = 2
    max_steps: int | None = None
    accumulate: int = 1
    precision: Precision = Precision.fp32
    grad_scaler: bool = False
    compile: bool = False
    optimizer: OptimizerForm | None = None
    evaluate: bool = True


@dataclass(kw_only=True)
class DdpConfig:
    """Options of DistributedDataParallel, with its own defaults; ``bucket_cap_mb`` is in MiB."""

    bucket_cap_mb: float | None = None
    broadcast_buffers: bool = True
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    hook: Hook | None = None


@dataclass(kw_only=True)
class LauncherConfig:
    """How worlds are started and watched; times in seconds."""

    backend: Backend = Backend.auto
    timeout_s: float = 600.0
    grace_s: float = 5.0
    env: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class OutputConfig:
    """Where a run is written: ``dir`` names a folder, else ``root`` gets the next free number."""

    root: str = "runs"
    dir: str | None = None
    overwrite: bool = False
    progress: bool = True


@dataclass(kw_only=True)
class RecordConfig:
    """One launch: what `record` makes and every rank reads."""

    nproc: int = 4
    seed: int = 0
    threads: int | None = 1
    level: str = "same-stack"
    seeding: Seeding = Seeding.inject
    epoch_guard: EpochGuard = EpochGuard.report
    workload: dict[str, Any] = field(default_factory=dict)
    determinism: Determinism = field(default_factory=Determinism)
    capture: CaptureConfig = field(default_factory=CaptureConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    ddp: DdpConfig = field(default_factory=DdpConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    launcher: LauncherConfig = field(default_factory=LauncherConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
