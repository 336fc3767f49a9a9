"""The part of a configuration that can move bits, and so belongs to the identity of a run."""

from typing import Any

from omegaconf import OmegaConf

from ddp_repro.config.choices import EpochGuard, Seeding
from ddp_repro.config.launch import RecordConfig
from ddp_repro.workload.script import read_script

OPERATIONAL = (
    "output", "launches", "twins", "second_look", "fail_fast", "compare", "judge", "golden", "report", "checkpoint",
    "resume", "bisect", "survey", "seeds", "candidate", "metric", "spread", "cost", "capture.timing", "capture.survey",
    "capture.boundary", "capture.boundary_at", "capture.keep", "capture.keep_mb", "launcher.timeout_s",
    "launcher.grace_s",
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
