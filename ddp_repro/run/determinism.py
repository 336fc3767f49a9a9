"""The determinism switches of a run, their profiles, and the environment that they need. Imports no torch by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.errors import ReproError


class DeterministicAlgorithms(Enum):
    """What torch does with an operator that has no deterministic form: nothing, warn, or raise."""

    off = "off"
    warn = "warn"
    error = "error"


class MatmulPrecision(Enum):
    """Internal precision of float32 matrix products; ``high`` is TF32 on a GPU, ``medium`` allows bfloat16."""

    highest = "highest"
    high = "high"
    medium = "medium"


@dataclass(kw_only=True, slots=True)
class Determinism:
    """Every switch on its own; None leaves it as it is. Values live in ``conf/determinism/<profile>.yaml``."""

    deterministic_algorithms: DeterministicAlgorithms | None = None
    fill_uninitialized_memory: bool | None = None
    inductor_deterministic: bool | None = None
    cudnn_deterministic: bool | None = None
    cudnn_benchmark: bool | None = None
    cudnn_tf32: bool | None = None
    float32_matmul_precision: MatmulPrecision | None = None
    cublas_workspace: str | None = None
    hash_seed: int | None = None


Switches = dict[str, bool | int | str | None]
"""Switches by name as plain JSON types, enums by their value."""


def wanted(determinism: Determinism) -> Switches:
    """Return the switches that `determinism` sets, without those that it leaves alone."""
    values = {field.name: getattr(determinism, field.name) for field in fields(determinism)}
    return {
        name: value.value if isinstance(value, Enum) else value for name, value in values.items() if value is not None
    }


def from_mapping(switches: Mapping[str, Any]) -> Determinism:
    """Return the switches in `switches`; raise `ReproError` for a name or a value that no switch has."""
    try:
        made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Determinism), dict(switches)))
    except OmegaConfBaseException as error:
        names = ", ".join(field.name for field in fields(Determinism))
        raise ReproError(
            f"determinism: {str(error).splitlines()[0]}", hint=f"its switches are {names}; null leaves one alone"
        ) from error
    assert isinstance(made, Determinism)
    check_ranges(made)
    return made


def check_ranges(determinism: Determinism) -> None:
    """Raise `ReproError` for a value that its type allows and its switch does not."""
    hash_seed = determinism.hash_seed
    if hash_seed is not None and not 0 <= hash_seed < 2**32:
        raise ReproError(f"determinism.hash_seed={hash_seed} is out of range", hint="use 0 to 4294967295")


def load_profile(name: str, **switches: Any) -> Determinism:
    """Return the profile `name` with single `switches` changed; raise `ReproError` if there is no such profile."""
    known = sorted(path.stem for path in (CONF_DIR / "determinism").glob("*.yaml"))
    if name not in known:
        raise ReproError(f"there is no determinism profile {name}", hint=f"choose one of {', '.join(known)}")
    values = OmegaConf.to_container(OmegaConf.load(CONF_DIR / "determinism" / f"{name}.yaml"))
    assert isinstance(values, dict)
    return from_mapping({str(key): value for key, value in values.items()} | switches)


def environment(determinism: Determinism, threads: int | None) -> dict[str, str]:
    """Return the variables that must be set before the interpreter starts; `threads` None leaves threads alone."""
    variables: dict[str, str] = {}
    if determinism.hash_seed is not None:
        variables["PYTHONHASHSEED"] = str(determinism.hash_seed)
    if determinism.cublas_workspace is not None:
        variables["CUBLAS_WORKSPACE_CONFIG"] = determinism.cublas_workspace
    if determinism.inductor_deterministic is not None:
        variables["TORCHINDUCTOR_DETERMINISTIC"] = str(int(determinism.inductor_deterministic))
    if threads is not None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        variables |= dict.fromkeys(names, str(threads))
        # Libraries may otherwise use fewer threads when the machine is busy, and threads decide how sums are split.
        variables |= dict.fromkeys(("OMP_DYNAMIC", "MKL_DYNAMIC"), "FALSE")
    return variables


def apply(determinism: Determinism) -> Switches:
    """Set the switches in this process and return what is in force, the ones left alone included.

    Everything is read back from PyTorch and from the interpreter. Raises `ReproError` for a switch that did not take,
    which is the case for what only works before the interpreter or CUDA starts.
    """
    from ddp_repro.run import switches  # noqa: PLC0415 - torch takes seconds, and a launcher needs none of it

    for name, value in wanted(determinism).items():
        switches.write(name, value)
    in_force = switches.read_all()
    for name, value in wanted(determinism).items():
        if in_force[name] != value:
            raise ReproError(
                f"determinism.{name}={value} did not take: {in_force[name]} is in force",
                hint=switches.remedy(name, value),
            )
    return in_force


def verify_environment(determinism: Determinism, threads: int | None) -> None:
    """Raise `ReproError` unless this process started in `environment` and torch uses `threads` threads."""
    from ddp_repro.run import start  # noqa: PLC0415 - as above

    start.verify(environment(determinism, threads), threads)


def apply_determinism(profile: str, **switches: Any) -> Switches:
    """Apply `profile` (prod, debug, survey, leave) to this process, with single `switches` changed.

    Returns what is in force. Raises `ReproError` for an unknown profile or switch, and for a switch that did not take;
    ``hash_seed=None`` leaves out the one that needs ``PYTHONHASHSEED`` before Python starts.
    """
    return apply(load_profile(profile, **switches))
