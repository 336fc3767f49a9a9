"""After launches or twins parted: two more up to that step, with its operators observed, to name what differs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ddp_repro.config import CaptureLevel, CheckConfig, CheckpointConfig, KeptPart, RecordConfig
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
    """The check that is looked into: its configuration, what it launched, its call, its folder, and who watches."""

    config: CheckConfig
    variants: Sequence[Variant]
    invocation: Invocation
    folder: RunFolder
    watcher: Watcher


Sides = tuple[Variant, Variant]
"""The variants of the two launches that part: one and the same, but of twins."""


def look_again(judgement: Judgement, command: Looking) -> Judgement:
    """Return the judgement with the operator named in its first finding, where a second look can find one."""
    found = worth_a_look(judgement.findings)
    if found is None or judgement.verdict is not Verdict.DIVERGED or not command.config.second_look:
        return judgement
    sides = _sides(found, command.variants)
    if sides is None:
        return judgement
    try:
        told, notes = _look(found, sides, judgement.classes, command)
    except ReproError as error:
        return replace(judgement, notes=[*judgement.notes, f"the second look failed: {error}"])
    findings = [told if one is found else one for one in judgement.findings]
    return replace(judgement, findings=findings, notes=[*judgement.notes, *notes])


def _sides(found: Finding, variants: Sequence[Variant]) -> Sides | None:
    """Return the variants that part, ``None`` where both are not to be observed, or not alike."""
    one, other = (next(one for one in variants if launch in one.launches) for launch in found.launches[:2])
    capture = one.config.capture
    return (one, other) if capture.level is not CaptureLevel.off and capture == other.config.capture else None


def _look(found: Finding, sides: Sides, alike: Sequence[Sequence[int]], command: Looking) -> tuple[Finding, list[str]]:
    assert found.step is not None
    step, made = found.step, 0
    notes: list[str] = []
    for number in range(_LOOKS):
        run = command.folder.look(number)
        own = _configs(sides, step, KeptPart(PARTS[found.phase]))
        look, launches = _until_parted(command, run, own)
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


def _configs(sides: Sides, step: int, part: KeptPart) -> tuple[RecordConfig, RecordConfig]:
    """Return with what both sides are launched again: to a few steps after ``step``, by the schedule of the whole."""
    one, other = sides
    first = _config(one.config, step, part)
    return first, first if other is one else _config(other.config, step, part)


def _config(config: RecordConfig, step: int, part: KeptPart) -> RecordConfig:
    capture = replace(
        config.capture,
        level=CaptureLevel.op,
        steps=[max(0, step - _BEFORE), step + _AFTER],
        keep=part,
        keep_mb=max(1, config.capture.keep_mb // _KEPT_STEPS),
    )
    checkpoint = CheckpointConfig(stop=step + _AFTER + 1, load=config.checkpoint.load)
    return replace(config, capture=capture, checkpoint=checkpoint)


def _until_parted(
    command: Looking, run: RunFolder, own: tuple[RecordConfig, RecordConfig]
) -> tuple[Look, list[Launch]]:
    """Launch the one side, and the other until it parts or there were enough; return the two that part, or all.

    Raises ``ReproError`` where one fails.
    """
    run.path.mkdir(exist_ok=True)
    look, launches = Look(parted=None, operator=None), []
    for made in range(_LAUNCHES):
        variants = [Variant(config=own[min(launch, 1)], launches=(launch,)) for launch in range(made + 1)]
        plan = Plan(folder=run, config=own[0], variants=variants)
        make_launches(plan, command.invocation, command.watcher, made=made)
        launches.append(load_launch(run.launch(made)))
        if launches[-1].problems:
            raise ReproError(launches[-1].problems[0], hint=f"See {run.path}.")
        look = looked(launches[0], launches[-1], are_twins=own[0] is not own[1]) if made else look
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
    # Sums of other parts are as far apart as the parts, and not as what is reduced in the end.
    if distance is not None and not (found.cause == "reduction-order" and parted.evidence == "input"):
        told = with_distance(told, distance)
    if found.witness == "twins":  # what parts them is what they override, and no want of determinism
        return told
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
