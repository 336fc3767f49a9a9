"""Reads an exact checkpoint: found whole, compared, fitted to what is here; only then is anything touched."""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ddp_repro.errors import ReproError
from ddp_repro.run.checkpoint.encoding import plain_json
from ddp_repro.run.checkpoint.fields import differences, identity_fields, is_allowed, refuse
from ddp_repro.run.checkpoint.files import read_document
from ddp_repro.run.checkpoint.fitting import fit
from ddp_repro.run.checkpoint.generators import restore_process_states, unusable_states
from ddp_repro.run.checkpoint.modules import Models, named, restore_modules, slots_of
from ddp_repro.run.checkpoint.optimizers import restore_optimizer
from ddp_repro.run.checkpoint.parts import VALUE, restore_part
from ddp_repro.run.checkpoint.progress import Restored
from ddp_repro.run.checkpoint.ranks import place_in_world, together
from ddp_repro.run.checkpoint.saving import Contents
from ddp_repro.run.checkpoint.search import Found, find_whole
from ddp_repro.run.checkpoint.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a rank knows of a checkpoint before it touches anything; ``own_rank``: whether this rank was saved."""

    document: dict[str, Any]
    store: Store
    not_exact: tuple[str, ...]
    own_rank: bool


def load_checkpoint(  # noqa: PLR0913  each is a thing of its own that a training has or has not
    folder_or_checkpoint: str | Path,
    *,
    model: Models,
    optimizer: Any,
    scheduler: Any = None,
    scaler: Any = None,
    extra: Mapping[str, Any] | None = None,
    identity: Mapping[str, Any] | None = None,
    allow: Sequence[str] = (),
) -> Restored:
    """Put a training back to where ``save_checkpoint`` saw it, bit by bit, and return what else it was.

    Call it on every rank, with objects that were made as for the start, after ``settle_buckets``. A folder that holds
    checkpoints gives the newest whole one; those that are damaged or were never finished are skipped with a warning.
    Nothing is unpickled. Global random states are restored as well: call ``Restored.restore_rng()`` once more right
    before training goes on, as making a loader's iterator draws from them.

    Raises ``ReproError`` on all ranks, before anything is touched, for a checkpoint that is damaged or of a later
    version, for names, shapes or classes that do not fit, and for a world size or field of ``identity`` that is another
    one and not in ``allow`` (names as the error tells them, a group such as ``software``, or ``*``).
    """
    contents = Contents(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, extra=extra)
    found = find_whole(Path(folder_or_checkpoint))
    kept: list[Checked] = []

    def check() -> None:
        kept.append(_checked(found, contents, identity, allow))

    together(check)
    checked = kept.pop()
    states: list[Mapping[str, Any]] = []
    together(lambda: states.append(_restore(checked, contents)))
    rng = functools.partial(restore_process_states, states[0])
    rng()
    torch.clear_autocast_cache()  # it may hold casts of what was there
    decode = checked.store.decode
    values = {name: decode(part["state"]) for name, part in checked.document["extra"].items() if part["kind"] == VALUE}
    return Restored(progress=found.manifest.progress, values=values, not_exact=checked.not_exact, rng=rng)


def _checked(found: Found, contents: Contents, identity: Mapping[str, Any] | None, allow: Sequence[str]) -> Checked:
    rank, world_size = place_in_world()
    own_rank = rank < found.manifest.world_size
    document = read_document(found.path / f"rank-{rank if own_rank else 0}.json")
    here = plain_json(identity_fields(identity, world_size), "identity")
    differing = differences(document["identity"], here)
    refuse(differing, allow)
    misfits = list(fit(document, contents))
    _refuse(found.path, misfits, allow)
    store = Store(found, rank if own_rank else None, document, contents)
    unusable = unusable_states(store.decode(document["rng"])) if own_rank else []
    _refuse(found.path, unusable, allow)
    misfits += unusable
    not_exact = (*differing, *(name for name, _ in misfits))
    _warn(not_exact, own_rank=own_rank)
    return Checked(document=document, store=store, not_exact=not_exact, own_rank=own_rank)


def _refuse(path: Path, misfits: Sequence[tuple[str, str]], allow: Sequence[str]) -> None:
    problems = [problem for name, problem in misfits if not is_allowed(name, allow)]
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ReproError(
            f"{path} does not fit: {'; '.join(problems[:5])}{more}",
            hint="build model, optimizer and the rest as they were when the checkpoint was saved",
        )


def _warn(not_exact: Sequence[str], *, own_rank: bool) -> None:
    if not_exact:
        log.warning("training goes on in other bits than it would have: %s differ, as allowed", ", ".join(not_exact))
    if not own_rank:
        log.warning("this rank was not there when the checkpoint was saved: its random states are not restored")


def _restore(checked: Checked, contents: Contents) -> Mapping[str, Any]:
    """Put everything but the random states back, and return those."""
    document, store = checked.document, checked.store
    slots = slots_of(contents.model)
    names = slots.names_by_identity()
    restore_modules(document["model"], slots, store.tensor, store.decode)
    # Schedulers first: what they do to the groups of their optimizer is overwritten by what was saved of it.
    for noun, things in (("scheduler", contents.scheduler), ("scaler", contents.scaler), ("extra", contents.extra)):
        for name, thing in named(things, noun).items():
            if name in document[noun]:
                restore_part(document[noun][name], thing, store.tensor, store.decode)
    for name, optimizer in named(contents.optimizer, "optimizer").items():
        restore_optimizer(document["optimizer"][name], optimizer, names, store.decode)
    return store.decode(document["rng"]) if checked.own_rank else {}
