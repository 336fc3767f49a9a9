"""What a configuration must hold beyond its types: every message names the key and what it takes."""

from dataclasses import replace

from ddp_repro.config import (
    Backend,
    BisectConfig,
    CaptureConfig,
    CaptureLevel,
    EpochGuard,
    KeptPart,
    RecordConfig,
    Seeding,
    SurveyConfig,
    is_script,
)
from ddp_repro.errors import ReproError
from ddp_repro.run.determinism import check_ranges
from ddp_repro.workload.script import check_file, read_script

LEVELS = ("same-stack",)
LONGEST_S = 864_000.0  # ten days: a socket's timeout must be a finite number


def validate_launch(config: RecordConfig) -> None:
    """Check what types alone do not; raise ReproError naming the key and what it takes."""
    counts = {"nproc": config.nproc, "train.epochs": config.train.epochs, "train.accumulate": config.train.accumulate}
    optional = {"threads": config.threads, "train.max_steps": config.train.max_steps}
    counts |= {key: value for key, value in optional.items() if value is not None}
    for key, value in counts.items():
        if value < 1:
            raise ReproError(f"{key}={value} is not possible.", hint=f"Set {key} to 1 or more.")
    if config.data.num_workers < 0:
        raise ReproError(f"data.num_workers={config.data.num_workers} is not possible.", hint="Use 0 or more workers.")
    if not 0 <= config.seed < 2**63:
        raise ReproError(f"seed={config.seed} is not possible.", hint="Use a seed from 0 to 2**63 - 1.")
    if not (0 < config.launcher.timeout_s <= LONGEST_S and 0 <= config.launcher.grace_s <= LONGEST_S):
        raise ReproError(
            f"launcher.timeout_s={config.launcher.timeout_s:g} with launcher.grace_s={config.launcher.grace_s:g} "
            "is not possible.",
            hint="Both are in seconds: the first above 0, the second 0 or more, neither longer than ten days.",
        )
    if config.ddp.bucket_cap_mb is not None and not 0 < config.ddp.bucket_cap_mb < 2**20:
        raise ReproError(f"ddp.bucket_cap_mb={config.ddp.bucket_cap_mb:g} is not possible.", hint="Use MiB above 0.")
    if config.data.persistent_workers and config.data.num_workers == 0:
        raise ReproError("data.persistent_workers=true needs workers.", hint="Set data.num_workers to 1 or more.")
    _validate_guard(config)
    _validate_capture(config.capture)
    check_ranges(config.determinism)
    validate_level(config.level)
    if is_script(config):
        _validate_script(config)
    elif config.seeding is not Seeding.inject:
        raise ReproError(
            "seeding=leave is for scripts; a workload that is built here is always seeded.",
            hint="Leave seeding out, or use workload=script workload.path=train.py.",
        )


def validate_bisect(config: BisectConfig) -> None:
    """Raise ReproError for a search that could conclude nothing."""
    options = config.bisect
    least = {"launches": (config.launches, 2), "bisect.first": (options.first, config.launches)}
    least["bisect.most"] = (options.most, options.first)
    for key, (value, wanted) in least.items():
        if value < wanted:
            raise ReproError(f"{key}={value} is not possible.", hint=f"Use {key}={wanted} or more.")
    if not 0.5 <= options.confidence < 1:
        raise ReproError(
            f"bisect.confidence={options.confidence:g} is not possible.", hint="Use a share from 0.5 to below 1."
        )
    known = [*options.factors, *(f"env.{name}" for name in config.launcher.env)]
    unknown = [name for name in options.skip if name not in known]
    if unknown:
        raise ReproError(f"bisect.skip names {unknown[0]}, which is no suspect.", hint=f"Suspects: {', '.join(known)}.")
    if config.capture.level is CaptureLevel.off:
        raise ReproError("capture=off leaves nothing to tell launches apart by.", hint="Leave capture out.")


def validate_survey(config: SurveyConfig) -> None:
    """Raise ReproError for a survey that would look at nothing."""
    if config.capture.level is not CaptureLevel.op:
        raise ReproError(
            f"capture={config.capture.level.value} does not look at operators.",
            hint="Leave capture out; of it, only capture.steps is for survey.",
        )
    steps, most = config.capture.steps, config.train.max_steps
    if steps and most is not None and steps[1] >= most:
        raise ReproError(
            f"capture.steps={steps} is not reached: train.max_steps={most} ends each launch before.",
            hint=f"Add train.max_steps={steps[1] + 1}.",
        )
    if config.survey.again < 1:
        raise ReproError(f"survey.again={config.survey.again} is not possible.", hint="Use survey.again=1 or more.")


def _validate_guard(config: RecordConfig) -> None:
    """Raise ReproError where the guard of epochs would see no loader."""
    if config.epoch_guard is not EpochGuard.report and config.capture.level is CaptureLevel.off:
        raise ReproError(
            f"epoch_guard={config.epoch_guard.value} would do nothing: with capture=off no loader is watched.",
            hint="Use capture=step, or leave epoch_guard out.",
        )


def _validate_capture(capture: CaptureConfig) -> None:
    """Raise ReproError for steps that are none, and for keys that would do nothing at the level of capture."""
    detailed = capture.level in (CaptureLevel.module, CaptureLevel.op)
    if capture.steps and (len(capture.steps) != 2 or not 0 <= capture.steps[0] <= capture.steps[1]):
        raise ReproError(
            f"capture.steps={capture.steps} is not possible.",
            hint="Give the first and the last step, counted from 0: capture.steps=[10,20]",
        )
    if capture.steps and not detailed:
        raise ReproError(
            f"capture.steps={capture.steps} would do nothing with capture={capture.level.value}.",
            hint="Use capture=module or capture=op.",
        )
    if capture.keep is not KeptPart.none and capture.level is not CaptureLevel.op:
        raise ReproError(f"capture.keep={capture.keep.value} would do nothing.", hint="Use it with capture=op.")
    for key, value in {"capture.limit_mb": capture.limit_mb, "capture.keep_mb": capture.keep_mb}.items():
        if value < 1:
            raise ReproError(f"{key}={value} is not possible.", hint=f"Set {key} to 1 (MiB) or more.")


def _validate_script(config: RecordConfig) -> None:
    """Raise ReproError for keys that steer the built-in training and would do nothing to a script."""
    check_file(read_script(config.workload))
    theirs = {"data": config.data, "ddp": config.ddp, "train": replace(config.train, max_steps=None)}
    idle = [
        f"{group}.{name}"
        for group, given in theirs.items()
        for name, value in vars(given).items()
        if value != getattr(type(given)(), name)
    ]
    if config.launcher.backend is not Backend.auto:
        idle.append("launcher.backend")
    if config.seeding is Seeding.leave and config.seed != 0:
        raise ReproError(
            f"seed={config.seed} does nothing: the script is left to seed itself.",
            hint="Add seeding=inject to have it seeded before it starts, or leave seed out.",
        )
    if idle:
        raise ReproError(
            f"{', '.join(idle)} would do nothing: a script has its own loop and its own loaders.",
            hint="Pass what the script takes in workload.args; of train.*, only train.max_steps ends a script.",
        )


def validate_level(level: str) -> None:
    """Raise ReproError for a level of reproducibility that this version cannot judge."""
    if level not in LEVELS:
        raise ReproError(f"level={level} cannot be judged by this version.", hint=f"Use one of: {', '.join(LEVELS)}.")
