"""The environment that a launch's ranks get: constructed for a built-in workload, inherited by a user's script."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ddp_repro.config import RecordConfig, Seeding, is_script
from ddp_repro.run import determinism
from ddp_repro.run.determinism import Determinism
from ddp_repro.run.environment import rank_environment, script_environment

INJECTED_HASH_SEED: Final = 0


def determinism_of(config: RecordConfig) -> Determinism:
    """Return the switches of a launch: with ``seeding=inject`` a hash seed is among them, whatever the profile."""
    switches = config.determinism
    if is_script(config) and config.seeding is Seeding.inject and switches.hash_seed is None:
        return replace(switches, hash_seed=INJECTED_HASH_SEED)
    return switches


def launch_environment(config: RecordConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what every rank of a launch starts in, all but the variables that tell it its place."""
    fixed = determinism.environment(determinism_of(config), config.threads)
    if is_script(config):
        return script_environment(environ, {**fixed, **config.launcher.env}, nproc=config.nproc)
    if config.nproc * (config.threads or 1) > (os.cpu_count() or 1):
        # Threads that spin while they wait take the cores from those that work: measured 177 ms a step against 27 ms
        # (four ranks of two threads on two cores).
        fixed["OMP_WAIT_POLICY"] = "PASSIVE"
    return rank_environment(environ, {**fixed, **config.launcher.env})
