"""The suspects of a search: what switches each of them off, and which have nothing to switch off here."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddp_repro.config import BisectConfig, Factor, is_script, read_factor
from ddp_repro.errors import ReproError
from ddp_repro.overrides import quoted
from ddp_repro.run import determinism
from ddp_repro.run.determinism import DeterministicAlgorithms
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch_environment import determinism_of, launch_environment
from ddp_repro.run.variants import moved_fields
from ddp_repro.validation import validate_launch

_SWITCH: Final = "determinism."
_GPUS: Final = ("/dev/nvidiactl", "/dev/kfd")
_OF_GPUS: Final = ("determinism.cudnn_", "determinism.cublas_workspace", "determinism.float32_matmul_precision")
_FORM: Final = "train.optimizer"
_OURS: Final = "ddp_repro.workload."
_NO_GPU: Final = "does nothing here: there is no GPU"
_ALGORITHMS: Final = "determinism.deterministic_algorithms"
_BUILT_IN: Final = ("train.", "data.", "ddp.")
"""What steers the built-in training; a script that has the same suspect switches it off by its own arguments."""
_OF_SCRIPT: Final = "the script's own, if it has it: bisect.factors names the arguments that switch it off"
_OFF_ALREADY: Final = "off already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One suspect: what switches it off, by overrides and by a script's arguments, and what it costs to keep off.

    ``idle`` says of overrides that were left out of it why they make no difference here.
    """

    name: str
    off: tuple[str, ...]
    args: tuple[str, ...]
    drop: tuple[str, ...]
    cost: str
    idle: str = ""

    def is_set_by(self, key: str) -> bool:
        """Tell whether one of its overrides sets ``key``."""
        return any(override.partition("=")[0] == key for override in self.off)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """The suspects of a command that have something to switch off, and why the others do not, by name."""

    config: BisectConfig
    invocation: Invocation
    ones: tuple[Suspect, ...]
    left_out: Mapping[str, str]

    def overrides(self, off: frozenset[str]) -> tuple[str, ...]:
        """Return the overrides that switch some of them off."""
        switched = [one for one in self.ones if one.name in off]
        found = [override for one in switched for override in one.off]
        if any(one.args or one.drop for one in switched):
            arguments = _arguments(self.config)
            for one in switched:
                arguments = [*_without(arguments, one.drop), *one.args]
            found.append(f"workload.args={quoted(shlex.join(arguments))}")
        return tuple(dict.fromkeys(found))

    def with_off(self, off: frozenset[str]) -> BisectConfig:
        """Return the command's configuration with some of them off; raise ``ReproError`` where it cannot run so."""
        if not off:
            return self.config
        composed = self.composed(off)
        validate_launch(composed)
        return composed

    def composed(self, off: frozenset[str]) -> BisectConfig:
        """Return the configuration with some of them off, whether or not it can run."""
        assert self.invocation.compose is not None
        try:
            composed: BisectConfig = self.invocation.compose(self.overrides(off))
        except ReproError as error:
            raise ReproError(f"with {', '.join(sorted(off))} off: {error}", hint=error.hint) from None
        return composed

    def without(self, reasons: Mapping[str, str]) -> "Suspects":
        """Return the suspects without those that ``reasons`` names."""
        return Suspects(
            config=self.config,
            invocation=self.invocation,
            ones=tuple(one for one in self.ones if one.name not in reasons),
            left_out={**self.left_out, **reasons},
        )


def suspects_of(config: BisectConfig, invocation: Invocation) -> Suspects:
    """Return the suspects of a command; raise ``ReproError`` for one that is written wrongly."""
    all_of_them = Suspects(
        config=config,
        invocation=invocation,
        ones=tuple(_suspect(name, factor, config) for name, factor in _factors(config)),
        left_out={},
    )
    reasons = {one.name: _idle(one, all_of_them) for one in all_of_them.ones}
    return all_of_them.without({name: reason for name, reason in reasons.items() if reason})


def not_taken(suspects: Suspects, config: BisectConfig, identity: Mapping[str, Any]) -> dict[str, str]:
    """Return the suspects that ``config`` switches off and that are on all the same: a script sets them itself.

    ``identity`` is that of a rank which was launched with ``config``.
    """
    in_force = identity.get("experiment", {}).get("determinism_in_force", {})
    threads = identity.get("environment", {}).get("threads")
    told = {
        f"{_SWITCH}{name}": f"the script sets it itself: {name} was {in_force[name]}"
        for name, value in determinism.wanted(determinism_of(config)).items()
        if name in in_force and in_force[name] != value
    }
    if config.threads is not None and threads is not None and threads != config.threads:
        told["threads"] = f"the script sets it itself: it ran with {threads} threads"
    return {one.name: reason for key, reason in told.items() for one in suspects.ones if one.is_set_by(key)}


def _factors(config: BisectConfig) -> Iterator[tuple[str, Factor]]:
    """Yield the suspects: what a script is given by arguments, variables that the command sets, and what is listed."""
    factors = {name: read_factor(name, given) for name, given in config.bisect.factors.items()}
    own = {name: one for name, one in factors.items() if one.args or one.drop}
    yield from own.items()
    for name in config.launcher.env:
        yield f"env.{name}", Factor(overrides=(f"~launcher.env.{name}",), cost=f"what {name} is set for")
    yield from ((name, one) for name, one in factors.items() if name not in own)


def _suspect(name: str, factor: Factor, config: BisectConfig) -> Suspect:
    own = bool(factor.args or factor.drop) and is_script(config)
    words = {key: _split(f"bisect.factors.{name}.{key}", text) for key, text in _texts(factor).items()}
    idle = {one: _does_nothing(one, config) for one in factor.overrides}
    return Suspect(
        name=name,
        off=tuple(one for one, why in idle.items() if not why and not (own and one.startswith(_BUILT_IN))),
        args=words["args"],
        drop=words["drop"],
        cost=factor.cost,
        idle=next((why for why in (_OFF_ALREADY, _NO_GPU) if why in idle.values()), ""),
    )


def _texts(factor: Factor) -> dict[str, str]:
    return {"args": factor.args, "drop": factor.drop}


def _split(key: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ReproError(
            f"{key}={text} cannot be split as a shell splits it: {error}.", hint="Close its quotes."
        ) from None


def _does_nothing(override: str, config: BisectConfig) -> str:
    """Return why an override makes no difference here, though it is another value; empty where it may make one."""
    key, _, value = override.partition("=")
    switches = config.determinism
    if key == _ALGORITHMS and value == "warn" and switches.deterministic_algorithms is DeterministicAlgorithms.error:
        return _OFF_ALREADY
    if _has_gpu():
        return ""
    if key == _FORM and config.train.optimizer is None and str(config.workload.get("_target_")).startswith(_OURS):
        return _OFF_ALREADY
    is_asked_for = key.endswith("precision") and switches.float32_matmul_precision is not None  # CPUs have bfloat16 too
    return _NO_GPU if key.startswith(_OF_GPUS) and not is_asked_for else ""


def _has_gpu() -> bool:
    return any(Path(device).exists() for device in _GPUS)


def _idle(suspect: Suspect, suspects: Suspects) -> str:
    """Return why a suspect has nothing to switch off; empty where it has."""
    config = suspects.config
    if suspect.name in config.bisect.skip:
        return "bisect.skip names it"
    if suspect.args or suspect.drop:
        return _idle_arguments(suspect, config)
    return _idle_overrides(suspect, suspects) if suspect.off else suspect.idle


def _idle_overrides(suspect: Suspect, suspects: Suspects) -> str:
    config = suspects.config
    if is_script(config) and all(one.startswith(_BUILT_IN) for one in suspect.off):
        return _OF_SCRIPT
    off = suspects.composed(frozenset({suspect.name}))
    try:
        validate_launch(off)
    except ReproError as error:
        return f"does nothing here: {str(error).splitlines()[0]}"
    if not moved_fields(config, off):
        return _OFF_ALREADY
    return _OFF_ALREADY if _is_one_thread(suspect, config, off) else ""


def _idle_arguments(suspect: Suspect, config: BisectConfig) -> str:
    if not is_script(config):
        return "does nothing here: only a script takes arguments"
    arguments = _arguments(config)
    if suspect.drop and _place(arguments, suspect.drop) is None:
        return f"the script is not given {shlex.join(suspect.drop)}"
    if not suspect.drop and _place(arguments, suspect.args) is not None:
        return _OFF_ALREADY
    return ""


def _is_one_thread(suspect: Suspect, config: BisectConfig, off: BisectConfig) -> bool:
    """Tell whether a script has one thread a rank as it is, as long as it sets no more itself."""
    if suspect.off != ("threads=1",) or config.threads is not None:
        return False
    counts = [launch_environment(one, os.environ).get("OMP_NUM_THREADS") for one in (config, off)]
    return counts[0] == counts[1]


def _arguments(config: BisectConfig) -> list[str]:
    return shlex.split(config.workload.get("args") or "")


def _place(arguments: Sequence[str], part: Sequence[str]) -> int | None:
    places = range(len(arguments) - len(part) + 1)
    return next((at for at in places if list(arguments[at : at + len(part)]) == list(part)), None)


def _without(arguments: list[str], part: Sequence[str]) -> list[str]:
    at = _place(arguments, part)
    return arguments if not part or at is None else [*arguments[:at], *arguments[at + len(part) :]]
