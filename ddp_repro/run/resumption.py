"""The launches of a training that is stopped and restarted: what each is given to be stopped, and to go on."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddp_repro.config import BoundaryCapture, CheckpointConfig, ResumeConfig, Stop, is_script
from ddp_repro.errors import ReproError
from ddp_repro.run.stops import Extent, Stops, asked_for, every_of
from ddp_repro.run.variants import Variant, moved_fields
from ddp_repro.trace.layout import RunFolder

_EXAMPLE = "'resume.save_args=\"--save {checkpoint} --stop-after {step}\"' 'resume.load_args=\"--resume {checkpoint}\"'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One launch of a stopped training.

    ``begins`` is the optimizer step from which it goes on: 0 at the very beginning, ``None`` where only its own
    checkpoint tells. ``stops`` is where it is stopped, ``None`` at the training's end, ``checkpoint`` where it saves.
    """

    variant: Variant
    begins: int | None
    stops: int | None
    checkpoint: Path | None


def validate_resume(config: ResumeConfig) -> None:
    """Raise ReproError for options that do not fit what is trained."""
    options = config.resume
    if config.checkpoint != CheckpointConfig():
        raise ReproError("resume saves and loads checkpoints itself.", hint="Leave checkpoint.* out.")
    if options.every is not None and (options.every < 1 or options.stop is not Stop.kill):
        raise ReproError(
            f"resume.every={options.every} is not possible.", hint="Use 1 or more, together with resume.stop=kill."
        )
    asked_for(options)
    if is_script(config):
        _validate_script(config)
    elif options.save_args or options.load_args or options.stop_after is not None:
        raise ReproError(
            "resume.save_args, resume.load_args and resume.stop_after are for scripts.",
            hint="A workload that is built here saves and loads by itself; name the steps in resume.at.",
        )


def _validate_script(config: ResumeConfig) -> None:
    options = config.resume
    for key, text in (("save_args", options.save_args), ("load_args", options.load_args)):
        if "{checkpoint}" not in text:
            raise ReproError(
                f"resume.{key} does not say where the checkpoint is.",
                hint=f"Say how the script saves and goes on: {_EXAMPLE}",
            )
    if options.stop is Stop.clean and "{step}" not in options.save_args and asked_for(options) is None:
        raise ReproError(
            "resume.save_args does not tell the script when to save.",
            hint="Put {step} into it, or say in resume.stop_after after which step the script saves by itself.",
        )


def straight(config: ResumeConfig) -> Variant:
    """Return the launch that is never stopped; all that each of its steps starts from is recorded."""
    capture = replace(config.capture, boundary=BoundaryCapture.every)
    return Variant(config=replace(config, capture=capture), launches=(0,), overrides=("never stopped",))


def stretches(config: ResumeConfig, points: Sequence[Stops], extent: Extent, folder: RunFolder) -> list[Stretch]:
    """Return the launches of each training that is stopped, in order, numbered from 1."""
    made: list[Stretch] = []
    for number, stops in enumerate(points):
        place = folder.checkpoints(number)
        before: Stretch | None = None
        for stop in (*stops, None):
            before = _stretch(config, _Next(extent=extent, place=place, before=before, stops=stop), len(made) + 1)
            made.append(before)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """Where a launch of one stopped training stands in it."""

    extent: Extent
    place: Path
    before: Stretch | None
    stops: int | None


def _stretch(config: ResumeConfig, at: _Next, launch: int) -> Stretch:
    is_killed = config.resume.stop is Stop.kill
    begins = 0 if at.before is None else None if is_killed else at.before.stops
    build = _of_script if is_script(config) else _built_in
    changed, checkpoint = build(config, at)
    told = ["from the beginning" if at.before is None else "gone on from a checkpoint"]
    if at.stops is not None:
        told.append(f"{'killed' if is_killed else 'stopped'} after step {at.stops}")
    since = 0 if at.before is None or not is_script(config) else at.before.stops or 0
    variant = Variant(
        config=changed,
        launches=(launch,),
        overrides=tuple(told),
        allow=moved_fields(config, changed),
        kill_at=at.stops - since if is_killed and at.stops is not None else None,
    )
    return Stretch(variant=variant, begins=begins, stops=at.stops, checkpoint=checkpoint)


def _captured(config: ResumeConfig, at: _Next) -> ResumeConfig:
    if at.before is None:
        return config
    return replace(config, capture=replace(config.capture, boundary=BoundaryCapture.first))


def _built_in(config: ResumeConfig, at: _Next) -> tuple[ResumeConfig, Path | None]:
    place = str(at.place.absolute())
    is_killed = config.resume.stop is Stop.kill
    checkpoint = CheckpointConfig(
        dir=place if at.stops is not None else None,
        every=every_of(config.resume, at.extent) if is_killed and at.stops is not None else None,
        stop=None if is_killed else at.stops,
        load=place if at.before is not None else None,
    )
    return replace(_captured(config, at), checkpoint=checkpoint), at.place if at.stops is not None else None


def _of_script(config: ResumeConfig, at: _Next) -> tuple[ResumeConfig, Path | None]:
    options, arguments = config.resume, [config.workload.get("args") or ""]
    saved = at.place / (f"after-{at.stops}" if options.stop is Stop.clean else "killed")
    since = 0 if at.before is None else at.before.stops or 0
    if at.before is not None and at.before.checkpoint is not None:
        arguments.append(_filled(options.load_args, at.before.checkpoint, since))
    checkpoint = CheckpointConfig()
    longest = None if config.train.max_steps is None else config.train.max_steps - since
    if at.stops is not None:
        arguments.append(_filled(options.save_args, saved, at.stops))
        if options.stop is Stop.clean:
            checkpoint, longest = CheckpointConfig(stop=at.stops - since), None
    changed = replace(
        _captured(config, at),
        workload={**config.workload, "args": " ".join(part for part in arguments if part)},
        train=replace(config.train, max_steps=longest),
        checkpoint=checkpoint,
    )
    return changed, saved if at.stops is not None else None


def _filled(arguments: str, checkpoint: Path, step: int) -> str:
    return arguments.replace("{checkpoint}", shlex.quote(str(checkpoint.absolute()))).replace("{step}", str(step))
