"""The folder of a run: claimed for writing, opened for reading."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from ddp_repro.errors import ReproError
from ddp_repro.trace.document import read_json, write_json
from ddp_repro.trace.launch import (
    OUTCOMES,
    Launch,
    LaunchRecord,
    RankExit,
    load_launch,
    read_launch_record,
    write_launch_record,
)
from ddp_repro.trace.layout import LaunchFolder, RunFolder

__all__ = [
    "OUTCOMES",
    "Launch",
    "LaunchFolder",
    "LaunchRecord",
    "RankExit",
    "RunFolder",
    "claim_run_folder",
    "load_launch",
    "open_run_folder",
    "read_json",
    "read_launch_record",
    "write_json",
    "write_launch_record",
]

_LAUNCH_FILES: Final = (
    "launch.json",
    "rank-*.arrows",
    "rank-*.log",
    "rank-*.identity.json",
    "rank-*.final.json",
    "rank-*.timing.json",
    "rank-*.survey.json",
    "rank-*.step-*.safetensors",
)


def claim_run_folder(root: Path) -> RunFolder:
    """Make ``root/<next free number>`` and return it; of several that claim at once, each gets its own.

    Raises ``ReproError`` when the folder cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        number = _next_number(root)
        while True:
            with suppress(FileExistsError):
                (root / str(number)).mkdir()
                return RunFolder(root / str(number))
            number += 1
    except OSError as error:
        raise _cannot_make(root, error) from error


def open_run_folder(path: Path, overwrite: bool) -> RunFolder:
    """Make the folder that the user named ready for a new run.

    A folder that already holds a run is refused (``ReproError``) unless ``overwrite``; then the files of that run are
    removed, and only those: whatever else lies there stays. Where that is in the folder of a launch, which a new launch
    cannot use then, nothing is removed and it is refused.
    """
    folder = RunFolder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (folder.files() or folder.launches()):
            return folder
        if not overwrite:
            raise ReproError(f"{path} already holds a run", hint="name another folder, or pass output.overwrite=true")
        _refuse_foreign(folder)
        _remove_run(folder)
    except OSError as error:
        raise _cannot_make(path, error) from error
    return folder


def _next_number(root: Path) -> int:
    return (
        max(
            (int(entry.name) for entry in root.iterdir() if entry.name.isascii() and entry.name.isdecimal()), default=-1
        )
        + 1
    )


def _own_files(launch: LaunchFolder) -> set[Path]:
    return {file for pattern in _LAUNCH_FILES for file in launch.path.glob(pattern)}


def _refuse_foreign(folder: RunFolder) -> None:
    for launch in folder.launches():
        foreign = sorted(set(launch.path.iterdir()) - _own_files(launch))
        if foreign:
            raise ReproError(
                f"{launch.path} holds {foreign[0].name}, which is no file of the run",
                hint="remove what a script wrote there ({out} stands for that folder), or name another output.dir",
            )
    for part in folder.parts():
        _refuse_foreign(part)


def _remove_run(folder: RunFolder) -> None:
    for launch in folder.launches():
        for file in _own_files(launch):
            file.unlink()
        with suppress(OSError):  # something was put into it meanwhile
            launch.path.rmdir()
    for part in folder.parts():
        _remove_run(part)
        with suppress(OSError):
            part.path.rmdir()
    for file in folder.files():
        file.unlink()


def _cannot_make(path: Path, error: OSError) -> ReproError:
    return ReproError(
        f"cannot use the run folder {path}: {error.strerror}", hint="check its permissions, or name another folder"
    )
