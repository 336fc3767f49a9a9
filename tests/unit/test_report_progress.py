import io
from typing import Any

import pytest
from rich.console import Console

from ddp_repro.report.progress import Progress


def run(console: Console, **options: Any) -> None:
    with Progress(console=console, **options) as progress:
        for launch in range(2):
            progress.launch_started(launch, 2)
            for step in range(1, 4):
                progress.step(launch, step, 3)
            if progress._bars is not None:
                progress._bars.refresh()
            progress.launch_finished(launch, "finished")


def test_without_a_terminal_there_is_one_line_a_launch() -> None:
    file = io.StringIO()
    run(Console(file=file, width=80))
    assert file.getvalue() == "launch 1 of 2: finished, 3 steps\nlaunch 2 of 2: finished, 3 steps\n"


def test_on_a_terminal_there_is_a_bar() -> None:
    file = io.StringIO()
    run(Console(file=file, width=80, force_terminal=True, color_system=None))
    assert "launch 2 of 2: step" in file.getvalue()
    assert "3/3" in file.getvalue()


def test_it_can_be_switched_off() -> None:
    file = io.StringIO()
    run(Console(file=file, width=80, force_terminal=True), enabled=False)
    assert file.getvalue() == ""


def test_a_run_that_breaks_off_leaves_the_terminal_in_order() -> None:
    file = io.StringIO()

    def break_off() -> None:
        with Progress(console=Console(file=file, force_terminal=True)) as progress:
            progress.launch_started(0, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert file.getvalue().rstrip().endswith("\x1b[2K")


def test_it_speaks_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.launch_started(0, 1)
        progress.launch_finished(0, "hung")
    assert capsys.readouterr() == ("", "launch 1 of 1: hung, 0 steps\n")
