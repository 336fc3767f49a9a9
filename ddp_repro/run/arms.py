"""What `cost` times: the command's own determinism, another profile, and each switch between them alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ddp_repro.config import CostConfig, is_script
from ddp_repro.errors import ReproError
from ddp_repro.run.determinism import Determinism, load_profile, wanted
from ddp_repro.run.variants import Variant

OWN: Final = "as it is"
_PROFILES: Final = ("prod", "debug", "survey", "leave")
_ALGORITHMS: Final = "deterministic_algorithms"
_FILL: Final = "fill_uninitialized_memory"
_ON_GPU: Final = ("cudnn_deterministic", "cudnn_benchmark", "cudnn_tf32", "cublas_workspace")
_LONGEST: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One thing that is timed: ``relative_to`` is the arm to which its steps are held, ``overrides`` what it sets."""

    name: str
    relative_to: str
    determinism: Determinism
    overrides: tuple[str, ...]


def planned_arms(config: CostConfig, *, has_gpu: bool) -> tuple[list[Arm], list[str]]:
    """Return the arms in the order in which they take turns, and the switches that are left out: they need a GPU.

    Raises ReproError where there is no such profile.
    """
    against = config.cost.against
    own, other = config.determinism, load_profile(against)
    called = next((name for name in _PROFILES if load_profile(name) == own), OWN)
    again = f"{against} again" if called == against else against
    arms = [
        Arm(name=called, relative_to=called, determinism=own, overrides=()),
        Arm(name=again, relative_to=called, determinism=other, overrides=(f"determinism={against}",)),
    ]
    before, after = wanted(own), wanted(other)
    differing = [name for name in after if before.get(name) != after[name]] if config.cost.switches else []
    left_out = [name for name in differing if name in _ON_GPU and not has_gpu]
    acting = [name for name in differing if name not in left_out]
    return arms + [_alone(name, arms[0], other, acting) for name in acting], left_out


def _alone(name: str, base: Arm, other: Determinism, acting: Sequence[str]) -> Arm:
    """Return the arm of one switch.

    Memory is filled only while algorithms are deterministic: with the switch for these, which is timed without it.
    """
    own, relative_to = base.determinism, base.name
    moved: dict[str, Any] = {name: getattr(other, name)}
    if name == _ALGORITHMS and own.fill_uninitialized_memory is None:
        moved[_FILL] = False  # PyTorch's default would fill
    if name == _FILL and _ALGORITHMS in acting:
        moved[_ALGORITHMS] = other.deterministic_algorithms
        relative_to = _ALGORITHMS
    changed = replace(own, **moved)
    values = wanted(changed)
    return Arm(
        name=name,
        relative_to=relative_to,
        determinism=changed,
        overrides=tuple(f"determinism.{key}={values.get(key)}" for key in moved),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One launch to be made: its number, its arm, and the how many-th of that arm it is."""

    launch: int
    arm: Arm
    repeat: int


def turns(arms: Sequence[Arm], repeats: int) -> list[Turn]:
    """Return the launches in order: all arms, then all of them backwards, and so on, so that a drift hits all alike."""
    order = [(arm, repeat) for repeat in range(repeats) for arm in (arms if repeat % 2 == 0 else list(reversed(arms)))]
    return [Turn(launch=number, arm=arm, repeat=repeat) for number, (arm, repeat) in enumerate(order)]


def timed(config: CostConfig, turn: Turn) -> Variant:
    """Return what is launched: so many steps and no more, without validation, with nothing observed."""
    steps = config.cost.warmup + config.cost.steps
    if is_script(config):
        train = replace(config.train, max_steps=steps)
    else:
        train = replace(config.train, max_steps=steps, epochs=_LONGEST, evaluate=False)
    own = replace(config, determinism=turn.arm.determinism, train=train, capture=replace(config.capture, timing=True))
    return Variant(config=own, launches=(turn.launch,), overrides=turn.arm.overrides)


def validate_cost(config: CostConfig) -> None:
    """Raise ReproError for counts of which nothing can be told, and for keys that would do nothing."""
    options = config.cost
    least = {"repeats": (options.repeats, 2), "warmup": (options.warmup, 1), "steps": (options.steps, 5)}
    for key, (value, smallest) in least.items():
        if not smallest <= value <= 100_000:
            raise ReproError(f"cost.{key}={value} is not possible.", hint=f"Use {smallest} or more.")
    if not 0.5 <= options.confidence <= 0.999:
        raise ReproError(
            f"cost.confidence={options.confidence} is not possible.", hint="Use a share from 0.5 to 0.999."
        )
    if config.train.max_steps is not None:
        raise ReproError(
            f"train.max_steps={config.train.max_steps} does nothing here.",
            hint="cost.warmup and cost.steps say how many steps a launch takes.",
        )
    if config.capture.level.value != "off":
        raise ReproError(
            f"capture={config.capture.level.value} would be timed along with the training.",
            hint="Leave capture out: nothing is observed while steps are timed.",
        )
    if config.checkpoint.dir or config.checkpoint.load or config.checkpoint.stop:
        raise ReproError("checkpoint.* would be timed along with the training.", hint="Leave checkpoint.* out.")
