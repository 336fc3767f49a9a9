"""After launches parted: two more up to that step, with its operators observed, to name the one that differs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ddp_repro.config import CaptureLevel, CheckConfig, CheckpointConfig, KeptPart
from ddp_repro.errors import ReproError, Verdict
from ddp_repro.judge.cures import Said, cure_of, setting_of
from ddp_repro.judge.findings import Distance, Finding, Judgement
from ddp_repro.judge.looking import (
    PARTS,
    Look,
    looked,
    of_call,
    output_distance,
    with_cure,
    with_distance,
    with_module,
    with_operator,
    without_return,
    worth_a_look,
)
from ddp_repro.judge.operators import OperatorDivergence
from ddp_repro.judge.wording import counted
from ddp_repro.observe.deterministic_list import entries_of
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch import Plan, Watcher, make_launches
from ddp_repro.run.variants import Variant
from ddp_repro.trace.launch import Launch, load_launch
from ddp_repro.trace.layout import LaunchFolder, RunFolder
from ddp_repro.trace.tensors import keep_only, read_tensors

_LAUNCHES: Final = 4  # at most; as a rule the second one parts from the first
_BEFORE: Final = 4  # steps looked at before the one in which launches parted: what races may show earlier
_AFTER: Final = 3
_KEPT_STEPS: Final = 4  # share the room of capture.keep_mb, which is that of one step
_LOOKS: Final = 2  # a race may show in another step than before: then that one is looked at
_UNSEEN: Final = "no operator that was observed differs before it: it is in what is fused, compiled or not torch's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """The check that is looked into: its configuration, how it was called, its folder, and who watches."""

    config: CheckConfig
    invocation: Invocation
    folder: RunFolder
    watcher: Watcher


def look_again(judgement: Judgement, command: Looking) -> Judgement:
    """Return the judgement with the operator named in its first finding, where a second look can find one."""
    found = worth_a_look(judgement.findings)
    is_wanted = command.config.second_look and command.config.capture.level is not CaptureLevel.off
    if found is None or judgement.verdict is not Verdict.DIVERGED or not is_wanted or command.config.twins:
        return judgement
    try:
        told, notes = _look(found, judgement.classes, command)
    except ReproError as error:
        return replace(judgement, notes=[*judgement.notes, f"the second look failed: {error}"])
    findings = [told if one is found else one for one in judgement.findings]
    return replace(judgement, findings=findings, notes=[*judgement.notes, *notes])


def _look(found: Finding, alike: Sequence[Sequence[int]], command: Looking) -> tuple[Finding, list[str]]:
    assert found.step is not None
    step, made = found.step, 0
    notes: list[str] = []
    for number in range(_LOOKS):
        run = command.folder.look(number)
        look, launches = _until_parted(command, run, step, KeptPart(PARTS[found.phase]))
        made += len(run.launches())
        notes.append(f"second look: {counted(len(run.launches()), 'launch')} up to step {step + _AFTER} in {run.path}")
        if look.step is None:
            _drop(launches)
            return without_return(found, alike, made), notes
        if look.step >= step - _BEFORE:
            return _told(found, look, launches), notes
        _drop(launches)
        step = look.step
    return found, [*notes, f"it parted at step {step} then, before the steps whose operators were observed"]


def _until_parted(command: Looking, run: RunFolder, step: int, part: KeptPart) -> tuple[Look, list[Launch]]:
    """Launch until one parts from the first, or there were enough; return the first and that one, or all.

    They end a few steps after ``step``, with the schedule of the whole training. Raises ``ReproError`` where one fails.
    """
    config = command.config
    capture = replace(
        config.capture,
        level=CaptureLevel.op,
        steps=[max(0, step - _BEFORE), step + _AFTER],
        keep=part,
        keep_mb=max(1, config.capture.keep_mb // _KEPT_STEPS),
    )
    checkpoint = CheckpointConfig(stop=step + _AFTER + 1, load=config.checkpoint.load)
    own = replace(config, capture=capture, checkpoint=checkpoint)
    run.path.mkdir(exist_ok=True)
    look, launches = Look(parted=None, operator=None), []
    for made in range(_LAUNCHES):
        variants = [Variant(config=own, launches=(launch,)) for launch in range(made + 1)]
        make_launches(Plan(folder=run, config=own, variants=variants), command.invocation, command.watcher, made=made)
        launches.append(load_launch(run.launch(made)))
        if launches[-1].problems:
            raise ReproError(launches[-1].problems[0], hint=f"See {run.path}.")
        look = looked(launches[0], launches[-1]) if made else look
        if look.step is not None:
            _drop(launches[1:-1])
            return look, [launches[0], launches[-1]]
    return look, launches


def _told(found: Finding, look: Look, launches: Sequence[Launch]) -> Finding:
    parted = look.operator
    assert look.step is not None
    if parted is None:
        _drop(launches)
        return with_module(replace(found, message=f"{found.message}; {_UNSEEN}"), look)
    told = with_operator(found, parted)
    if parted.evidence == "input":
        told = with_module(told, look)
    distance = _distance(parted, launches)
    if distance is not None:
        told = with_distance(told, distance)
    said = [Said(words=one.sentence, has_form=one.has_form) for one in entries_of(parted.operator.operator)]
    return with_cure(told, cure_of(parted, said, setting_of(launches[0], parted.rank)), parted)


def _distance(parted: OperatorDivergence, launches: Sequence[Launch]) -> Distance | None:
    """Return how far the operator's outputs are apart; of the kept tensors only its own stay on disk."""
    if not parted.other_call:  # only one of the launches called it
        _drop(launches)
        return None
    calls, tensors = (parted.operator.call, parted.other_call), []
    for launch, call in zip(launches, calls, strict=True):
        file = LaunchFolder(launch.path).tensors(parted.rank, parted.step)
        tensors.append(of_call(read_tensors(file), call) if file.exists() else {})
    _drop(launches)
    for launch, one in zip(launches, tensors, strict=True):
        keep_only(LaunchFolder(launch.path).tensors(parted.rank, parted.step), one)
    return output_distance((tensors[0], tensors[1]), calls)


def _drop(launches: Sequence[Launch]) -> None:
    """Remove the tensors that were kept in these launches."""
    for launch in launches:
        for file in LaunchFolder(launch.path).kept():
            file.unlink()
