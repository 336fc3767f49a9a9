"""Launches that differ by their seed alone: how the seed reaches a training, and which launch has which."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ddp_repro.config import RecordConfig, Seeding, SpreadConfig, is_script
from ddp_repro.errors import ReproError
from ddp_repro.run.variants import Variant
from ddp_repro.trace.layout import LaunchFolder, RunFolder

SEED: Final = "{seed}"
Arm = Literal["A", "B"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One launch to be made: its arm (A as the command has it, B with its candidate), its seed and its number."""

    arm: Arm
    seed: int
    launch: int
    folder: LaunchFolder
    config: RecordConfig

    def fill(self, text: str) -> str:
        """Return ``text`` with what stands for this launch's seed, number and folder put in."""
        return fill(text, seed=self.seed, folder=self.folder)

    def variant(self, overrides: Sequence[str]) -> Variant:
        """Return what is launched."""
        own = (*(overrides if self.arm == "B" else ()), f"seed={self.seed}")
        return Variant(config=self.config, launches=(self.launch,), overrides=own)


def fill(text: str, *, seed: int, folder: LaunchFolder) -> str:
    """Return ``text`` with ``{seed}``, ``{launch}`` and ``{out}`` (the launch's folder) put in; other braces stay."""
    filled = text.replace(SEED, str(seed)).replace("{launch}", str(folder.index))
    return filled.replace("{out}", str(folder.path.resolve()))


def planned_trials(config: SpreadConfig, candidate: SpreadConfig | None, folder: RunFolder) -> list[Trial]:
    """Return the launches in order: both arms seed by seed, then the first seed again."""
    arms: list[tuple[Arm, SpreadConfig]] = [("A", config), *([("B", candidate)] if candidate is not None else [])]  # type: ignore[list-item]
    wanted = [(arm, own, seed) for seed in config.seeds for arm, own in arms]
    wanted += [("A", config, config.seeds[0])] * (config.spread.repeats - 1)
    return [_trial(arm, own, seed, folder.launch(number)) for number, (arm, own, seed) in enumerate(wanted)]


def _trial(arm: Arm, config: SpreadConfig, seed: int, folder: LaunchFolder) -> Trial:
    return Trial(arm=arm, seed=seed, launch=folder.index, folder=folder, config=seeded(config, seed, folder))


def seeded(config: SpreadConfig, seed: int, folder: LaunchFolder) -> SpreadConfig:
    """Return the configuration of one launch: with its seed, where a seed goes, and no other difference."""
    if not is_script(config):
        return replace(config, seed=seed)
    launcher = replace(config.launcher, env=_filled(config.launcher.env, seed, folder))
    workload = {**_filled(config.workload, seed, folder), "args": _arguments(config.workload, seed, folder)}
    own = seed if config.seeding is Seeding.inject else config.seed
    return replace(config, seed=own, workload=workload, launcher=launcher)


def _filled(options: dict[str, Any], seed: int, folder: LaunchFolder) -> dict[str, Any]:
    return {
        key: fill(value, seed=seed, folder=folder) if isinstance(value, str) else value
        for key, value in options.items()
    }


def _arguments(options: dict[str, Any], seed: int, folder: LaunchFolder) -> str:
    """Return a script's arguments with all put in; a folder with spaces in its name stays one argument."""
    parts = shlex.split(options.get("args") or "")
    return shlex.join(fill(part, seed=seed, folder=folder) for part in parts)


def refuse_unreachable(config: RecordConfig) -> None:
    """Raise ReproError where nothing would tell a script its seed."""
    if not is_script(config) or config.seeding is Seeding.inject:
        return
    told = (str(config.workload.get("args") or ""), *config.launcher.env.values())
    if not any(SEED in text for text in told):
        raise ReproError(
            "nothing tells the script its seed, so all launches would be one and the same.",
            hint="Put {seed} where the script takes it, 'workload.args=\"--seed {seed}\"' or "
            "'launcher.env.SEED=\"{seed}\"', or have it seeded before it starts: seeding=inject",
        )
