"""What a sweep makes of its runs, here and elsewhere."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.config import CheckConfig, OutputConfig
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.run.driver import Interrupted, Invocation, catch_signals
from ddp_repro.submission import There, run_there
from ddp_repro.sweep import Job, Sweep, placed, run_here
from tests.unit.test_report_summary import write_verdict


def sweep_of(tmp_path: Path, count: int = 3, **output: Any) -> Sweep:
    jobs = [
        Job(
            overrides=(f"seed={number}",),
            settings=CheckConfig(seed=number, output=OutputConfig(root=str(tmp_path / "runs"), **output)),
            compose=lambda _more: CheckConfig(),
        )
        for number in range(count)
    ]
    return placed("check", ["-m", "seed=range(3)"], jobs)


def summary(sweep: Sweep) -> list[tuple[str | None, str]]:
    runs = json.loads(sweep.files.document.read_text())["runs"]
    return [(run["verdict"], run["first"]) for run in runs]


def judged(verdict: str, code: ExitCode) -> Callable[[Any, Invocation], ExitCode]:
    def run(settings: Any, _invocation: Invocation) -> ExitCode:
        write_verdict(Path(settings.output.dir), verdict)
        return code

    return run


def test_a_run_that_cannot_be_made_costs_none_of_the_others(tmp_path: Path) -> None:
    def run(settings: Any, invocation: Invocation) -> ExitCode:
        assert invocation.overrides == (f"seed={settings.seed}",)
        if settings.seed == 0:
            raise ReproError("seed=0 is not possible.", hint="Use another.")
        if settings.seed == 1:
            raise ZeroDivisionError("a crash")
        return judged("REPRODUCIBLE", ExitCode.REPRODUCIBLE)(settings, invocation)

    sweep = sweep_of(tmp_path)
    assert run_here(sweep, run) is ExitCode.NOT_JUDGED
    assert summary(sweep) == [
        ("NOT_JUDGED", "seed=0 is not possible."),
        ("NOT_JUDGED", "ZeroDivisionError: a crash"),
        ("REPRODUCIBLE", ""),
    ]


def test_a_code_that_is_not_the_verdicts_is_not_judged(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, count=1)
    assert run_here(sweep, judged("REPRODUCIBLE", ExitCode.NOT_JUDGED)) is ExitCode.NOT_JUDGED
    assert "verdict.json says else" in summary(sweep)[0][1]


def test_a_run_without_a_verdict_is_recorded_only_where_it_ended_well(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, count=1)
    assert run_here(sweep, lambda _settings, _invocation: ExitCode.REPRODUCIBLE) is ExitCode.REPRODUCIBLE
    assert summary(sweep) == [(None, "")]
    sweep = sweep_of(tmp_path, count=1)
    assert run_here(sweep, lambda _settings, _invocation: ExitCode.NOT_JUDGED) is ExitCode.NOT_JUDGED


@pytest.mark.parametrize("raises", [False, True])
def test_an_interruption_ends_the_sweep_and_says_what_was_not_run(tmp_path: Path, raises: bool) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    made = []

    def run(settings: Any, _invocation: Invocation) -> ExitCode:
        made.append(settings.seed)
        if settings.seed == 1:
            try:
                signal.raise_signal(signal.SIGTERM)
            except Interrupted:
                if raises:
                    raise
            return judged("NOT_JUDGED", ExitCode.NOT_JUDGED)(settings, _invocation)
        return judged("REPRODUCIBLE", ExitCode.REPRODUCIBLE)(settings, _invocation)

    sweep = sweep_of(tmp_path)
    try:
        catch_signals({})
        assert run_here(sweep, run) is ExitCode.NOT_JUDGED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert made == [0, 1]
    assert [verdict for verdict, _ in summary(sweep)] == ["REPRODUCIBLE", "NOT_JUDGED", "NOT_JUDGED"]
    assert summary(sweep)[2][1] == "not run: the sweep was interrupted before it"


def test_a_folder_holds_one_sweep(tmp_path: Path) -> None:
    named = str(tmp_path / "mine")
    run_here(sweep_of(tmp_path, dir=named), lambda _settings, _invocation: ExitCode.REPRODUCIBLE)
    with pytest.raises(ReproError, match="already holds a sweep"):
        sweep_of(tmp_path, dir=named)
    sweep_of(tmp_path, dir=named, overwrite=True)


def test_runs_elsewhere_are_judged_by_what_they_left(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, count=4)

    def submit(there: There) -> None:
        assert there.arguments[2] == ("seed=2", f'output.dir="{tmp_path}/runs/0/2"')
        write_verdict(tmp_path / "runs/0/0", "REPRODUCIBLE")
        there.files.outcome(0).write_text('{"exit_code": 0}')
        write_verdict(tmp_path / "runs/0/1", "REPRODUCIBLE")  # and then it was killed
        write_verdict(tmp_path / "runs/0/2", "REPRODUCIBLE")
        there.files.outcome(2).write_text('{"exit_code": 137}')
        there.files.outcome(3).write_text('{"exit_code": "0"}')
        raise ReproError("one job did not end well.")

    assert run_there(sweep, submit) is ExitCode.NOT_JUDGED
    told = summary(sweep)
    assert [verdict for verdict, _ in told] == ["REPRODUCIBLE", "NOT_JUDGED", "NOT_JUDGED", "NOT_JUDGED"]
    assert told[1][1].startswith("its job did not end")
    assert "ended with code 137" in told[2][1]


def test_what_an_earlier_sweep_left_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    named = tmp_path / "mine"
    named.mkdir()
    write_verdict(named / "0", "REPRODUCIBLE")
    (named / "0.json").write_text('{"exit_code": 0}')
    sweep = sweep_of(tmp_path, count=1, dir=str(named), overwrite=True)
    assert run_there(sweep, lambda _there: None) is ExitCode.NOT_JUDGED
