"""Runs a command on the command line, on one node or on its node of several; every ending is 0, 1 or 2."""

import contextlib
import io
import os
import sys
import traceback
from dataclasses import replace
from functools import partial

from ddp_repro.cli.command import Command
from ddp_repro.cli.composing import Composed, compose, compose_more, compose_twins
from ddp_repro.cli.sweeping import launcher_of, sweep
from ddp_repro.errors import ExitCode, ReproError, Verdict
from ddp_repro.report.terminal import print_error, print_verdict
from ddp_repro.run.driver import Interrupted, Invocation, catch_signals, refuse_several_drivers
from ddp_repro.run.nodes.place import NodePlace, node_place


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
        return sweep(command, composed, invocation)
    return _run(command, composed, invocation)


def _run(command: Command, composed: Composed, invocation: Invocation) -> ExitCode:
    if not composed.jobs:  # --help, --cfg
        return ExitCode.REPRODUCIBLE
    return command.run(composed.jobs[0].settings, invocation)


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


def _composed(command: Command, nodes: int = 1) -> tuple[Composed, Invocation]:
    """Return what the command line comes to, and the way in which it was called."""
    typed = sys.argv[1:]
    launcher = launcher_of(typed)
    composed = compose(command, [argument for argument in typed if argument not in launcher])
    if composed.is_sweep and nodes > 1:
        raise ReproError("-m runs on one node.", hint="Over several nodes, call it once for each value.")
    if launcher and composed.jobs and not composed.is_sweep:
        raise ReproError(f"{launcher[0]} does nothing without -m.", hint="Add -m, or leave it out.")
    alone = [] if composed.is_sweep else composed.jobs  # the jobs of a sweep have no twins
    return composed, Invocation(
        command=command.name,
        overrides=tuple(typed),
        twins=tuple(twin for job in alone for twin in compose_twins(command, typed, job.settings)),
        compose=partial(compose_more, command, typed),
    )
