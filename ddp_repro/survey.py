"""Answers `survey`: which operators have no deterministic form, or were seen to differ on the same inputs."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("survey")

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ddp_repro.cli import Command, run_command
from ddp_repro.config import CaptureLevel, RecordConfig, SurveyConfig
from ddp_repro.errors import ExitCode, Verdict
from ddp_repro.judge.survey import Surveyed, gathered, surveyed
from ddp_repro.judge.wording import counted
from ddp_repro.measured import identity_told
from ddp_repro.page import open_where_wanted, page_told
from ddp_repro.report.html.tables import write_tables
from ddp_repro.report.progress import Progress
from ddp_repro.report.survey import print_survey, survey_document, survey_tables
from ddp_repro.run.determinism import DeterministicAlgorithms
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.place import place_run
from ddp_repro.run.variants import Variant
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.launch import load_launch
from ddp_repro.trace.layout import LaunchFolder, RunFolder
from ddp_repro.validation import validate_launch, validate_survey

_ON: Final = 0
_OFF: Final = 1


def survey(config: SurveyConfig, invocation: Invocation) -> ExitCode:
    """Launch with deterministic algorithms on and off, list what may differ, report; 1 where one is not accepted."""
    validate_launch(config)
    validate_survey(config)
    folder = place_run(config.output)
    modes = (DeterministicAlgorithms.warn, DeterministicAlgorithms.off)
    variants = [Variant(config=_surveying(config, mode), launches=(number,)) for number, mode in enumerate(modes)]
    with suppress(Interrupted), Progress(enabled=config.output.progress) as progress:
        make_launches(Plan(folder=folder, config=config, variants=variants), invocation, progress)
    result = replace(_result(folder, config), identity=identity_told(folder))
    document = survey_document(result, folder, invocation.text)
    write_json(folder.verdict, document)
    written = page_told(folder, config.report, lambda: write_tables(folder.report, document, survey_tables(document)))
    print_survey(result, folder, written)
    open_where_wanted(folder, config.report, written)
    return result.verdict.exit_code


def _surveying(config: SurveyConfig, mode: DeterministicAlgorithms) -> RecordConfig:
    """Return the configuration of a launch in which operators run again."""
    capture = replace(config.capture, level=CaptureLevel.op, survey=config.survey.again)
    switches = replace(config.determinism, deterministic_algorithms=mode)
    if mode is DeterministicAlgorithms.off and switches.cudnn_deterministic is not None:
        switches = replace(switches, cudnn_deterministic=False)
    return replace(config, capture=capture, determinism=switches)


def _result(folder: RunFolder, config: SurveyConfig) -> Surveyed:
    launches = [load_launch(one) for one in folder.launches()]
    problems = [problem for launch in launches for problem in launch.problems]
    if not problems and len(launches) < 2:
        problems = [f"only {counted(len(launches), 'launch')} of 2 was made"]
    reports = [_reports(folder.launch(number), config.nproc) for number in (_ON, _OFF)]
    if not problems and not all(reports):
        problems = ["no operator was seen: there was no forward with gradients in the steps that were looked at"]
    if problems:
        return Surveyed(verdict=Verdict.NOT_JUDGED, sentence=problems[0], problems=tuple(problems))
    result = surveyed(gathered(reports[_ON]), gathered(reports[_OFF]), config.survey.accept)
    return replace(result, notes=(*result.notes, *_notes(reports, config)))


def _reports(launch: LaunchFolder, nproc: int) -> list[dict[str, Any]]:
    return [read_json(launch.survey(rank)) for rank in range(nproc) if launch.survey(rank).exists()]


def _notes(reports: Sequence[Sequence[Mapping[str, Any]]], config: SurveyConfig) -> list[str]:
    """Return what limits what was seen."""
    notes = [f"{counted(reports[_ON][0]['steps'], 'step')} of each rank were looked at, in two launches"]
    if config.train.max_steps is not None:
        notes[0] += "; train.max_steps=null looks at all"
    wanted = {_ON: [True], _OFF: [False]}
    for number, mode in wanted.items():
        if any(report["deterministic"] != mode for report in reports[number]):
            asked = "on" if number == _ON else "off"
            notes.append(
                f"the script switches deterministic algorithms itself: they were not {asked} all the time where they "
                "were to be, so what they cure or refuse may be missing"
            )
    if any(report["compiled"] for launch in reports for report in launch):
        notes.append("regions that torch.compile made stay compiled: operators in them were not looked at")
    return notes


def main() -> None:
    """Run as ``python -m ddp_repro.survey``."""
    run_command(Command(name="survey", schema=SurveyConfig, run=survey))
