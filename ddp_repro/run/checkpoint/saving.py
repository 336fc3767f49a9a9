"""Writes an exact checkpoint: aside, through to the disk, sealed, then put in place by one rename."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from ddp_repro.errors import ReproError
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.run.checkpoint.encoding import plain_json
from ddp_repro.run.checkpoint.fields import identity_fields
from ddp_repro.run.checkpoint.files import Entry, settle_file, settle_folder, write_document, write_tensors
from ddp_repro.run.checkpoint.folder import discard, make_partial, prune, publish
from ddp_repro.run.checkpoint.generators import process_states
from ddp_repro.run.checkpoint.manifest import Manifest, write_manifest
from ddp_repro.run.checkpoint.modules import Models, named, save_modules, slots_of
from ddp_repro.run.checkpoint.optimizers import save_optimizer
from ddp_repro.run.checkpoint.parts import save_part, save_stateful
from ddp_repro.run.checkpoint.progress import Progress
from ddp_repro.run.checkpoint.ranks import place_in_world, together
from ddp_repro.run.checkpoint.sharded import FOLDER, save_sharded, shards_in
from ddp_repro.run.checkpoint.snapshot import Snapshot, storable

log = logging.getLogger(__name__)

OWN: Final = "rng"
"""The section of what is each rank's own, whatever the others have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a training consists of, beside its progress and its random states."""

    model: Models
    optimizer: Any
    scheduler: Any = None
    scaler: Any = None
    extra: Mapping[str, Any] | None = None


def save_checkpoint(  # noqa: PLR0913  each is a thing of its own that a training has or has not
    folder: str | Path,
    *,
    model: Models,
    optimizer: Any,
    progress: Progress,
    scheduler: Any = None,
    scaler: Any = None,
    extra: Mapping[str, Any] | None = None,
    identity: Mapping[str, Any] | None = None,
    keep: int = 2,
) -> Path:
    """Save all that the next step depends on as ``folder/step-<8 digits>``, and return that path.

    Call it on every rank, between two optimizer steps; ``folder`` is on a file system that all ranks see. ``model``,
    ``optimizer``, ``scheduler`` and ``scaler`` are one or several (a mapping or a list). ``extra`` holds by name what
    else has a state (an average of the parameters, a sampler, a generator) or is a plain value. ``identity`` is what
    the run is (numbers and texts, nested), compared on loading; world size is always in it.

    The checkpoint is there whole or not at all, whenever the process dies; of the older ones ``keep`` - 1 stay. Nothing
    of the training moves. Raises ``ReproError`` on all ranks where one cannot save, and what was there stands.
    """
    contents = Contents(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, extra=extra)
    root = Path(folder)
    rank, _ = place_in_world()
    gathered: list[tuple[Snapshot, dict[str, torch.Tensor]]] = []

    def gather() -> dict[str, Any]:
        if keep < 1:
            raise ReproError(f"keep={keep} would keep no checkpoint", hint="keep one or more")
        snapshot = take_snapshot(contents, progress, identity)
        own = {key: storable(tensor) for key, tensor in snapshot.tensors.items()} if rank == 0 else {}
        gathered.append((snapshot, own))
        return _told_to_others(snapshot, own, progress)

    told = together(gather)
    _check_agreement(told)
    # Each rank goes by its own way to the folder, which may be mounted elsewhere.
    partial = root / together(lambda: make_partial(root, progress.step).name if rank == 0 else "")[0]
    snapshot, own = gathered.pop()
    with _discarded_on_failure(partial, rank):
        if snapshot.sharded:
            save_sharded(snapshot.sharded, partial / FOLDER)
        files = together(lambda: _write_own(partial, snapshot, own, told[0]["digests"]))
        together(lambda: _finish(partial, progress, files) if rank == 0 else None)
        final: Path = root / together(lambda: publish(partial, progress.step).name if rank == 0 else "")[0]
    if rank == 0:
        _prune(root, keep, final)
    return final


def _told_to_others(snapshot: Snapshot, own: Mapping[str, torch.Tensor], progress: Progress) -> dict[str, Any]:
    """Return what ranks compare before they save."""
    several = place_in_world()[1] > 1
    return {
        "progress": asdict(progress),
        "sharded": sorted(snapshot.sharded),
        "digests": {key: tensor_digest(tensor).hex() for key, tensor in own.items()} if several else {},
    }


def take_snapshot(contents: Contents, progress: Progress, identity: Mapping[str, Any] | None) -> Snapshot:
    """Return what this rank has to save. Raises ``ReproError`` for what cannot be saved, by its place."""
    snapshot = Snapshot()
    slots = slots_of(contents.model)
    names = slots.names_by_identity()
    world_size = place_in_world()[1]
    snapshot.document.update(
        progress=asdict(progress),
        identity=plain_json(identity_fields(identity, world_size), "identity"),
        model=save_modules(snapshot, slots, "model"),
        optimizer={
            name: save_optimizer(snapshot, one, names, _section("optimizer", name))
            for name, one in named(contents.optimizer, "optimizer").items()
        },
        scheduler=_stateful(snapshot, contents.scheduler, "scheduler"),
        scaler=_stateful(snapshot, contents.scaler, "scaler"),
        extra={name: save_part(snapshot, one, f"extra/{name}") for name, one in named(contents.extra, "extra").items()},
        rng=snapshot.encode(process_states(), f"{OWN}/state"),
        left_out=snapshot.left_out,
    )
    for place in snapshot.left_out:
        log.warning("%s is an object that cannot be saved without a pickle, and is left out: make it anew", place)
    return snapshot


def _section(section: str, name: str) -> str:
    return f"{section}/{name}" if name else section


def _stateful(snapshot: Snapshot, things: Any, noun: str) -> dict[str, Any]:
    return {
        name: save_stateful(snapshot, one, f"{noun}/{name or 'state'}") for name, one in named(things, noun).items()
    }


def _check_agreement(told: list[dict[str, Any]]) -> None:
    for noun in ("progress", "sharded"):
        other = next((rank for rank, one in enumerate(told) if one[noun] != told[0][noun]), None)
        if other is not None:
            raise ReproError(
                f"rank 0 and rank {other} do not save the same: {noun} is {told[0][noun]} and {told[other][noun]}",
                hint="call save_checkpoint on every rank after the same step",
            )


def _write_own(
    partial: Path, snapshot: Snapshot, own: dict[str, torch.Tensor], first: Mapping[str, str]
) -> dict[str, Entry]:
    """Write this rank's files and return them: rank 0's state by sections, of other ranks what differs from it."""
    rank, _ = place_in_world()
    files: dict[str, Entry] = {}
    for name, tensors in (_by_file(own) if rank == 0 else _differing(snapshot, first, rank)).items():
        files[name] = write_tensors(partial / name, tensors)
    for path in shards_in(partial)[rank :: place_in_world()[1]]:
        files[f"{FOLDER}/{path.name}"] = settle_file(path)
    files[f"rank-{rank}.json"] = write_document(partial / f"rank-{rank}.json", snapshot.document)
    return files


def _by_file(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    found: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        section, _, name = key.partition("/")
        file, inner = ("rank-0.safetensors", key) if section == OWN else (f"{section}.safetensors", name)
        found.setdefault(file, {})[inner] = tensor
    return found


def _differing(snapshot: Snapshot, first: Mapping[str, str], rank: int) -> dict[str, dict[str, torch.Tensor]]:
    kept = {}
    for key, tensor in snapshot.tensors.items():
        stored = storable(tensor)
        if key.startswith(f"{OWN}/") or first.get(key) != tensor_digest(stored).hex():
            kept[key] = stored
    return {f"rank-{rank}.safetensors": kept} if kept else {}


def _finish(partial: Path, progress: Progress, files: list[dict[str, Entry]]) -> None:
    known = {name: entry for own in files for name, entry in own.items()}
    missing = [name for name in known if not (partial / name).is_file()]
    if missing:
        raise ReproError(
            f"{missing[0]} was written and rank 0 does not see it",
            hint="name a folder on a file system that the ranks of all nodes share",
        )
    if shards_in(partial):
        settle_folder(partial / FOLDER)
    write_manifest(partial, Manifest(progress=progress, world_size=len(files), files=known))


@contextmanager
def _discarded_on_failure(partial: Path, rank: int) -> Iterator[None]:
    try:
        yield
    except Exception:
        if rank == 0:
            discard(partial)
        raise


def _prune(root: Path, keep: int, newest: Path) -> None:
    try:
        prune(root, keep, newest)
    except OSError as error:
        log.warning("older checkpoints in %s could not be removed: %s", root, error.strerror)
