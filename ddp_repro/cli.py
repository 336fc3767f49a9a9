"""The only place that knows Hydra: composes a command's configuration, maps every ending to an exit code."""

import contextlib
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.errors import ExitCode, ReproError, Verdict
from ddp_repro.overrides import as_meant, how_to_write, quoted
from ddp_repro.report.terminal import print_error, print_heading, print_verdict
from ddp_repro.run.driver import Interrupted, Invocation, catch_signals, refuse_several_drivers
from ddp_repro.run.nodes.place import NodePlace, node_place
from ddp_repro.submission import There, run_there
from ddp_repro.sweep import Job, placed, run_here

TWINS, CANDIDATE = "twins", "candidate"
MULTIRUN = ("-m", "--multirun")
ONE_NODE = ("hydra.launcher.nodes", "hydra.launcher.tasks_per_node")
_IN_VAIN = "To append to your config use +"  # a key that is added does nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command's name, the dataclass of its configuration, and what it does; the function returns an exit code.

    One that ``spans_nodes`` can be started on several nodes by torchrun, one driver on each.
    """

    name: str
    schema: type[Any]
    run: Callable[[Any, Invocation], ExitCode]
    spans_nodes: bool = False


def run_command(command: Command) -> None:
    """Run ``command`` on ``sys.argv`` and exit with 0, 1 or 2 and nothing else."""
    sys.exit(int(_guarded(command)))


def _guarded(command: Command) -> ExitCode:
    place = NodePlace()
    try:
        refuse_several_drivers(os.environ)
        place = node_place(os.environ)
        catch_signals(os.environ)
        return _compose_and_run(command) if place.nodes == 1 else _on_nodes(command, place)
    except ReproError as error:
        _tell(error, place)
    except Interrupted as stop:
        _tell(ReproError(f"interrupted by {stop.signal_name}; every process of the run was ended."), place)
    except Exception:  # noqa: BLE001  a crash must end with 2: 1 is kept for a difference that was found
        traceback.print_exc()
    if place.node == 0:
        print_verdict(Verdict.NOT_JUDGED)
    return ExitCode.NOT_JUDGED


def _tell(error: ReproError, place: NodePlace) -> None:
    """Print what is wrong; of several nodes, the one that speaks is named where it is not the one that judges."""
    print_error(ReproError(f"{place.called}: {error}", hint=error.hint) if place.node else error)


def _compose_and_run(command: Command) -> ExitCode:
    composed, invocation = _composed(command)
    if composed.is_sweep:
        return _sweep(command, composed, invocation)
    return _run(command, composed, invocation)


def _run(command: Command, composed: "_Composed", invocation: Invocation) -> ExitCode:
    for job in composed.jobs:
        return command.run(job.settings, invocation)
    return ExitCode.REPRODUCIBLE  # --help and --cfg run nothing


def _on_nodes(command: Command, place: NodePlace) -> ExitCode:
    """Run the command with one driver on each node: driver 0 decides and tells, the others do what it says."""
    if not command.spans_nodes:
        if place.node:
            return ExitCode.NOT_JUDGED
        raise ReproError(
            f"{command.name} runs on one node, and torchrun started it on {place.nodes}.",
            hint="Use torchrun --nnodes 1.",
        )
    from ddp_repro.run.nodes.follow import excuse, follow  # noqa: PLC0415  torch, which not every command needs
    from ddp_repro.run.nodes.lead import leading  # noqa: PLC0415

    if place.node == 0:
        composed, invocation = _composed(command, nodes=place.nodes)
        if not composed.jobs:  # --help, --cfg
            return ExitCode.REPRODUCIBLE
        with leading(place, composed.jobs[0].settings, invocation) as nodes:
            nodes.verdict = _run(command, composed, replace(invocation, nodes=nodes))
        return nodes.verdict
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            composed, invocation = _composed(command, nodes=place.nodes)
    except ReproError as error:
        excuse(place, error)
        raise
    return follow(place, composed.jobs[0].settings, invocation) if composed.jobs else ExitCode.REPRODUCIBLE


def _composed(command: Command, nodes: int = 1) -> tuple["_Composed", Invocation]:
    """Return what the command line comes to, and the way in which it was called."""
    typed = sys.argv[1:]
    launcher = _launcher(typed)
    composed = _compose(command, [argument for argument in typed if argument not in launcher])
    if composed.is_sweep and nodes > 1:
        raise ReproError("-m runs on one node.", hint="Over several nodes, call it once for each value.")
    if launcher and composed.jobs and not composed.is_sweep:
        raise ReproError(f"{launcher[0]} does nothing without -m.", hint="Add -m, or leave it out.")
    twins = [] if composed.is_sweep else [_compose_twins(command, typed, job.settings) for job in composed.jobs]
    return composed, Invocation(
        command=command.name,
        overrides=tuple(typed),
        twins=tuple(twin for one in twins for twin in one),
        compose=partial(_compose_more, command, typed),
    )


def _launcher(typed: list[str]) -> list[str]:
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


def _sweep(command: Command, composed: "_Composed", invocation: Invocation) -> ExitCode:
    typed, jobs = list(invocation.overrides), composed.jobs
    launcher = _launcher(typed)
    for job in jobs:
        if not hasattr(job.settings, "output"):
            raise ReproError(f"{command.name} cannot be combined with -m.", hint="Call it once for each value.")
        if _named(job.settings):
            named = CANDIDATE if getattr(job.settings, CANDIDATE, None) else TWINS
            raise ReproError(f"{named} and -m cannot be combined.", hint="Call it once for each value that -m names.")
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
            _call_hydra(command, [*launcher, "--cfg=hydra"], lambda _config: None)
    except ReproError as error:
        is_missing = "Could not find 'hydra/launcher/submitit" in str(error)
        hint = "pip install hydra-submitit-launcher==1.2.0" if is_missing else "See docs/slurm.md."
        raise ReproError(str(error), hint=hint) from None


def _submit(command: Command, typed: list[str], there: There) -> None:
    """Have Hydra's launcher start the runs, and wait for them; raise ReproError with Hydra's words where it cannot."""

    def task(_config: DictConfig) -> int:
        return there.run(HydraConfig.get().job.num)

    _call_hydra(command, [*as_meant(typed), *_hydra_folder(str(there.files.path))], task)


def _compose_twins(command: Command, typed: list[str], settings: Any) -> list[Any]:
    """Return the configurations that ``twins`` or ``candidate`` names: the command's own overrides, then theirs."""
    shared = [argument for argument in typed if argument.lstrip("+").partition("=")[0] not in (TWINS, CANDIDATE)]
    return [_compose_twin(command, shared, overrides) for overrides in _named(settings)]


def _named(settings: Any) -> list[list[str]]:
    candidate = getattr(settings, CANDIDATE, [])
    return [candidate] if candidate else getattr(settings, TWINS, [])


def _compose_twin(command: Command, shared: list[str], overrides: list[str]) -> Any:
    what = CANDIDATE if CANDIDATE in command.schema.__dataclass_fields__ else "twin"
    for override in overrides:
        if override.startswith("-") or override.partition("=")[0].lstrip("+") in (TWINS, CANDIDATE):
            raise ReproError(
                f"{override} cannot stand in a {what}.", hint=f"A {what} is a list of overrides: key=value."
            )
    try:
        (job,) = _compose(command, [*shared, *overrides]).jobs
    except ReproError as error:
        raise ReproError(f"the {what} [{', '.join(overrides)}]: {error}", hint=error.hint) from None
    return job.settings


def _compose_more(command: Command, typed: Sequence[str], more: Sequence[str]) -> Any:
    """Return the configuration of overrides that come to one job, with further ones that win."""
    (job,) = _compose(command, [*typed, *more]).jobs
    return job.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Composed:
    """What arguments come to: one job, several with ``-m``, none with ``--cfg`` or ``--help``."""

    jobs: list[Job]
    is_sweep: bool


def _compose(command: Command, typed: list[str]) -> _Composed:
    """Return the configurations that Hydra composes. Raises ReproError with Hydra's words.

    Nothing is run inside Hydra, which would print a traceback and exit with 1.
    """
    found: list[tuple[tuple[str, ...], RunMode | None, DictConfig]] = []

    def task(config: DictConfig) -> None:
        hydra_config = HydraConfig.get()
        found.append((tuple(hydra_config.overrides.task), hydra_config.mode, config))

    ConfigStore.instance().store(name=f"{command.name}_schema", node=command.schema)
    with tempfile.TemporaryDirectory() as scratch:
        may_sweep = any(word in MULTIRUN or word.lstrip("+").startswith("hydra.mode=") for word in typed)
        place = _hydra_folder(scratch) if may_sweep else []
        _call_hydra(command, [*as_meant(typed), *place], task)
    return _Composed(
        jobs=[
            Job(
                overrides=overrides,
                settings=_settings(command, config),
                compose=partial(_compose_more, command, overrides),
            )
            for overrides, _, config in found
        ],
        is_sweep=any(mode is RunMode.MULTIRUN for _, mode, _ in found),
    )


def _hydra_folder(folder: str) -> list[str]:
    """Return what has Hydra write what it writes of a sweep into a folder, and not beside the user's files."""
    return [f"hydra.sweep.dir={quoted(folder)}"]


def _call_hydra(command: Command, arguments: list[str], task: Callable[[DictConfig], Any]) -> None:
    flags = [argument for argument in arguments if argument in MULTIRUN]  # Hydra reads no flag between overrides
    sys.argv[1:] = [*flags, *(argument for argument in arguments if argument not in MULTIRUN)]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=command.name)(task)()
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise _refusal(told.getvalue(), command, arguments) from None
    except ValueError as error:  # of Hydra's own options, two that exclude each other
        raise ReproError(str(error), hint=_cfg_hint(command)) from None


def _refusal(told: str, command: Command, arguments: list[str]) -> ReproError:
    """Return Hydra's refusal, with the argument that it could not read, where there is one, and how it is written."""
    unknown = told.partition("unrecognized arguments: ")[2].partition("\n")[0]
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("-"):
            is_unreadable = argument in unknown
        else:
            is_unreadable = not before.startswith("-") and _is_unreadable(argument)
        if is_unreadable:
            return ReproError(f"{argument} cannot be read as key=value.", hint=how_to_write(argument))
    return ReproError(in_short(told), hint=_cfg_hint(command))


def _is_unreadable(argument: str) -> bool:
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return True
    return False


def _settings(command: Command, config: DictConfig) -> Any:
    for key in _unknown(config):
        raise ReproError(f"{key} is no key of {command.name}, not even with a plus.", hint=_cfg_hint(command))
    try:
        return OmegaConf.to_object(config)
    except OmegaConfBaseException as error:  # a value that must be given is missing
        raise ReproError(str(error).splitlines()[0], hint=_cfg_hint(command)) from error


def _unknown(config: DictConfig, above: str = "") -> Iterator[str]:
    """Yield the keys that were added where a dataclass has none of that name: they would do nothing."""
    kind = OmegaConf.get_type(config)
    for key in config:
        value = None if OmegaConf.is_missing(config, key) else config[key]
        if is_dataclass(kind) and key not in kind.__dataclass_fields__:
            yield f"{above}{key!s}"
        elif isinstance(value, DictConfig):
            yield from _unknown(value, f"{above}{key!s}.")


def in_short(told: str) -> str:
    """Return Hydra's message without what only helps its own developers."""
    head = told.rpartition("error: ")[2] if told.startswith("usage: ") else told.partition("Config search path")[0]
    lines = [line for line in head.splitlines() if line.strip() and "HYDRA_FULL_ERROR" not in line]
    return "\n".join(line for line in lines if "_type=" not in line and not line.startswith(_IN_VAIN))


def _cfg_hint(command: Command) -> str:
    return f"python -m ddp_repro.{command.name} --cfg job shows every key and its value."
