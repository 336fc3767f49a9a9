"""Finds a checkpoint that is whole, as all ranks agree; each verifies what it reads, and its share of the rest."""

import logging
from dataclasses import dataclass
from pathlib import Path

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.files import damage
from ddp_repro.run.checkpoint.folder import checkpoints_in, is_checkpoint
from ddp_repro.run.checkpoint.manifest import DamagedError, Manifest, read_manifest
from ddp_repro.run.checkpoint.ranks import place_in_world, together

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A whole checkpoint and what its manifest says."""

    path: Path
    manifest: Manifest


def find_whole(named: Path) -> Found:
    """Return the checkpoint that was named, or the newest whole one under it.

    Raises ``ReproError`` on all ranks where there is none, where the one that was named is damaged, and where the
    newest was written by a later version.
    """
    rank, _ = place_in_world()
    candidates = [named / name for name in together(lambda: _candidates(named) if rank == 0 else [])[0]]
    skipped = []
    for path in candidates:
        found: list[Found] = []
        problem = _damage(path, found)
        if not problem:
            return found[0]
        if path == named:
            raise ReproError(f"{path} is damaged: {problem}", hint="take an older checkpoint")
        if rank == 0:
            log.warning("%s is skipped: %s", path, problem)
        skipped.append(f"{path.name}: {problem}")
    if skipped:
        raise ReproError(f"{named} holds no whole checkpoint ({'; '.join(skipped[:3])})", hint="name another folder")
    raise ReproError(f"{named} holds no checkpoint", hint="name a folder that save_checkpoint was given")


def _candidates(named: Path) -> list[str]:
    if not named.is_dir():
        raise ReproError(f"{named} is no folder", hint="name a folder that save_checkpoint was given, or a checkpoint")
    return ["."] if is_checkpoint(named) else [path.name for path in checkpoints_in(named)]


def _damage(path: Path, found: list[Found]) -> str:
    """Return what is wrong with a checkpoint on any rank; where nothing is, put it into ``found``."""

    def verify() -> str:
        try:
            manifest = read_manifest(path)
        except DamagedError as error:
            return str(error)
        found.append(Found(path=path, manifest=manifest))
        needed = manifest.needed_by(*place_in_world())
        return next(filter(None, (damage(path, name, manifest.files[name]) for name in needed)), "")

    return next(filter(None, together(verify)), "")
