"""The schema of every command's configuration; Hydra fills it, ranks read it back from ``config.yaml``."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ddp_repro.errors import ReproError
from ddp_repro.run.determinism import Determinism
from ddp_repro.workload.script import read_script


class Reseed(Enum):
    """From what a sample's augmentation is drawn: its own index, or its loader worker's stream."""

    sample = "sample"
    worker = "worker"


class Precision(Enum):
    """Arithmetic of forward and loss: float32, or bfloat16 autocast."""

    fp32 = "fp32"
    bf16 = "bf16"


class Backend(Enum):
    """The process group's backend; ``auto`` is NCCL where every local rank has a GPU, else gloo."""

    auto = "auto"
    gloo = "gloo"
    nccl = "nccl"


class CaptureLevel(Enum):
    """How much of a launch is observed."""

    step = "step"
    off = "off"


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


@dataclass(kw_only=True)
class CaptureConfig:
    """What is observed of each launch.

    ``boundary`` says before which steps all that a step starts from is recorded, for runs that are stopped there;
    with ``boundary_at`` before these (optimizer steps done before them).
    """

    level: CaptureLevel = CaptureLevel.step
    boundary: BoundaryCapture = BoundaryCapture.none
    boundary_at: list[int] = field(default_factory=list)


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

    With ``grad_scaler`` the loss is scaled by ``torch.amp.GradScaler``.
    """

    epochs: int = 2
    max_steps: int | None = None
    accumulate: int = 1
    precision: Precision = Precision.fp32
    grad_scaler: bool = False
    evaluate: bool = True


@dataclass(kw_only=True)
class DdpConfig:
    """Options of DistributedDataParallel, with its own defaults; ``bucket_cap_mb`` is in MiB."""

    bucket_cap_mb: float | None = None
    broadcast_buffers: bool = True
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False


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
class CompareRules:
    """Identity fields (dotted) that may differ between compared launches."""

    allow: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class JudgeConfig:
    """What no witness looks at: globs on the names of observations (``*.running_mean``, ``buffer:*.codebook``)."""

    ignore: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class PageConfig:
    """The verdict in pictures: whether ``report.html`` is written, and opened in a browser afterwards."""

    html: bool = True
    open: bool = False


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


@dataclass(kw_only=True)
class CheckConfig(RecordConfig):
    """Repeated launches of the same thing, and the rules by which they are judged.

    ``twins`` holds lists of overrides: variants that must not differ. ``launches`` None is 2, or 1 for each variant.
    """

    launches: int | None = None
    twins: list[list[str]] = field(default_factory=list)
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)

    @property
    def launches_each(self) -> int:
        """Return the number of launches, of each variant where there are variants."""
        return self.launches if self.launches is not None else (1 if self.twins else 2)


class Stop(Enum):
    """How a training is stopped: in order, after a checkpoint, or by SIGKILL between two of them."""

    clean = "clean"
    kill = "kill"


@dataclass(kw_only=True)
class ResumeOptions:
    """Where a training is stopped and restarted, counted in optimizer steps.

    ``at`` holds steps, and lists of steps for several stops one after the other; empty: points that the epochs tell.
    ``every``: with ``stop=kill``, the steps between two checkpoints. A script gets ``save_args`` where it is to be
    stopped, and ``load_args`` where it goes on; in both, ``{checkpoint}`` is a path and ``{step}`` the step at which it
    is stopped. ``stop_after`` is that step for a script that does not take it.
    """

    at: list[Any] = field(default_factory=list)
    stop: Stop = Stop.clean
    every: int | None = None
    stop_after: int | None = None
    save_args: str = ""
    load_args: str = ""


@dataclass(kw_only=True)
class ResumeConfig(RecordConfig):
    """A training that is never stopped, and the same one stopped and restarted."""

    resume: ResumeOptions = field(default_factory=ResumeOptions)
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)


@dataclass(kw_only=True)
class CompareConfig:
    """Recorded runs to judge against each other."""

    runs: list[str] = field(default_factory=list)
    level: str = "same-stack"
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)
    output: OutputConfig = field(default_factory=OutputConfig)


@dataclass(kw_only=True)
class RetellConfig:
    """The run whose ``report.html`` is made again from its files."""

    run: str = ""
    report: PageConfig = field(default_factory=PageConfig)


OPERATIONAL = (
    "output", "launches", "twins", "compare", "judge", "report", "checkpoint", "resume", "capture.boundary",
    "capture.boundary_at", "launcher.timeout_s", "launcher.grace_s",
)  # fmt: skip


def is_script(config: RecordConfig) -> bool:
    """Tell whether a user's script is trained, not something that is built here."""
    return "_target_" not in config.workload and ("path" in config.workload or "module" in config.workload)


def semantic(config: RecordConfig) -> dict[str, Any]:
    """Return the part of the configuration that can move bits, as plain JSON types (enum members by name)."""
    plain = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    assert isinstance(plain, dict)
    for dotted in OPERATIONAL:
        *parents, key = dotted.split(".")
        node = plain
        for parent in parents:
            node = node[parent]
        node.pop(key, None)
    settings = {str(key): value for key, value in plain.items()}
    if config.epoch_guard is not EpochGuard.fix:
        del settings["epoch_guard"]  # one that tells, or stops, moves no bit
    return _semantic_of_script(config, settings) if is_script(config) else _without(settings, "seeding")


def _semantic_of_script(config: RecordConfig, settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out what does nothing to a script; where its file lies says nothing about what it computes."""
    return _without(settings, "data", "ddp") | {
        "seed": config.seed if config.seeding is Seeding.inject else None,
        "workload": read_script(config.workload).identity(),
        "train": {"max_steps": config.train.max_steps},
        "launcher": _without(settings["launcher"], "backend"),
    }


def _without(settings: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in keys}


def save_config(config: RecordConfig | CompareConfig, path: Path) -> None:
    """Write the resolved configuration as YAML."""
    path.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)), encoding="utf-8")


def load_record_config(path: Path) -> RecordConfig:
    """Read what a rank needs from the run's ``config.yaml``.

    Raises ReproError where the file is missing or is not such a configuration.
    """
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
        if not isinstance(loaded, dict):
            raise ReproError(f"{path} is not a run's configuration: it holds no keys.")
        known = {key: value for key, value in loaded.items() if key in RecordConfig.__dataclass_fields__}
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RecordConfig), known))
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ReproError(f"{path} is not a run's configuration: {error}") from error
    assert isinstance(config, RecordConfig)
    return config
