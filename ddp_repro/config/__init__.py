"""The schema of every command's configuration; Hydra fills it, ranks read it back from ``config.yaml``."""

from ddp_repro.config.choices import (
    Backend,
    BoundaryCapture,
    CaptureLevel,
    EpochGuard,
    KeptPart,
    Precision,
    Reseed,
    Seeding,
    Stop,
)
from ddp_repro.config.commands import (
    CheckConfig,
    CompareConfig,
    CompareRules,
    JudgeConfig,
    PageConfig,
    ResumeConfig,
    ResumeOptions,
    RetellConfig,
)
from ddp_repro.config.files import load_record_config, save_config
from ddp_repro.config.identity import is_script, semantic
from ddp_repro.config.launch import (
    CaptureConfig,
    CheckpointConfig,
    DataConfig,
    DdpConfig,
    LauncherConfig,
    OutputConfig,
    RecordConfig,
    TrainConfig,
)
from ddp_repro.config.summary import SummaryConfig

__all__ = [
    "Backend",
    "BoundaryCapture",
    "CaptureConfig",
    "CaptureLevel",
    "CheckConfig",
    "CheckpointConfig",
    "CompareConfig",
    "CompareRules",
    "DataConfig",
    "DdpConfig",
    "EpochGuard",
    "JudgeConfig",
    "KeptPart",
    "LauncherConfig",
    "OutputConfig",
    "PageConfig",
    "Precision",
    "RecordConfig",
    "Reseed",
    "ResumeConfig",
    "ResumeOptions",
    "RetellConfig",
    "Seeding",
    "Stop",
    "SummaryConfig",
    "TrainConfig",
    "is_script",
    "load_record_config",
    "save_config",
    "semantic",
]
