"""Runs each combination that ``-m`` names: here, one after the other, or by another launcher of Hydra's."""

import contextlib
import io

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ddp_repro.cli.command import Command
from ddp_repro.cli.composing import CANDIDATE, TWINS, Composed, named
from ddp_repro.cli.hydra_call import call_hydra, hydra_folder
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.overrides import as_meant
from ddp_repro.report.terminal import print_heading
from ddp_repro.run.driver import Invocation
from ddp_repro.submission import There, run_there
from ddp_repro.sweep import placed, run_here

ONE_NODE = ("hydra.launcher.nodes", "hydra.launcher.tasks_per_node")


def launcher_of(typed: list[str]) -> list[str]:
    """Return the arguments that have Hydra start the runs of a sweep elsewhere, and say how."""
    found = [argument for argument in typed if argument.lstrip("+").startswith(("hydra/launcher=", "hydra.launcher."))]
    for argument in found:
        key, _, value = argument.lstrip("+").partition("=")
        if key in ONE_NODE and value != "1":
            raise ReproError(
                f"{argument}: each run of a sweep has one driver on one node.",
                hint="slurm/check.sbatch runs one check over several nodes (docs/slurm.md).",
            )
    return [] if found == ["hydra/launcher=basic"] else found


def sweep(command: Command, composed: Composed, invocation: Invocation) -> ExitCode:
    """Run the jobs, each in a folder of its own, and tell of all in a table; return the worst code."""
    typed, jobs = list(invocation.overrides), composed.jobs
    launcher = launcher_of(typed)
    for job in jobs:
        if not hasattr(job.settings, "output"):
            raise ReproError(f"{command.name} cannot be combined with -m.", hint="Call it once for each value.")
        if named(job.settings):
            key = CANDIDATE if getattr(job.settings, CANDIDATE, None) else TWINS
            raise ReproError(f"{key} and -m cannot be combined.", hint="Call it once for each value that -m names.")
    if not launcher:
        return run_here(placed(command.name, typed, jobs), command.run)
    _try_launcher(command, launcher)
    sweep = placed(command.name, typed, jobs)
    print_heading(f"{len(jobs)} runs by {' '.join(launcher)}; what they print is under {sweep.files.path}/.submitit")
    return run_there(sweep, lambda there: _submit(command, typed, there))


def _try_launcher(command: Command, launcher: list[str]) -> None:
    """Raise ReproError where a launcher of Hydra's is not installed, or does not have what is set of it."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call_hydra(command, [*launcher, "--cfg=hydra"], lambda _config: None)
    except ReproError as error:
        is_missing = "Could not find 'hydra/launcher/submitit" in str(error)
        hint = "pip install hydra-submitit-launcher==1.2.0" if is_missing else "See docs/slurm.md."
        raise ReproError(str(error), hint=hint) from None


def _submit(command: Command, typed: list[str], there: There) -> None:
    """Have Hydra's launcher start the runs, and wait for them; raise ReproError with Hydra's words where it cannot."""

    def task(_config: DictConfig) -> int:
        return there.run(HydraConfig.get().job.num)

    call_hydra(command, [*as_meant(typed), *hydra_folder(str(there.files.path))], task)
