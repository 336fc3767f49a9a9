"""The public side of seeding: one root seed a process, and the streams that are drawn from it."""

import gc

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ddp_repro.errors import ReproError
from ddp_repro.run import seeding
from ddp_repro.run.placement import rank_and_world_size

_root: int | None = None


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices), before the model is built, equally on every rank.

    `seed` is the root of every other stream: `seed_training`, `generator` and `make_loader` derive theirs from it.
    Raises `ReproError` for a seed that is not a whole number of 0 to 2**64 - 1, and when a model was already built in
    this process, because its parameters would then come from an unseeded generator.
    """
    global _root  # noqa: PLW0603 - the global generators that it stands for are one a process as well
    seed = seeding.checked_seed(seed)
    model = _live_model()
    if model is not None:
        raise ReproError(
            f"seed_everything({seed}) was called after a model was built ({model}): its parameters were drawn from an "
            "unseeded generator and differ at every launch",
            hint="call seed_everything before the model is built; to seed what follows the model, call seed_training()",
        )
    seeding.seed_model(seed)
    _root = seed


def seed_training(shard: int | None = None) -> None:
    """Switch the global generators to this shard's training stream. Call it after the model is built.

    `seed_everything` leaves every rank with the same stream, which is right for building the model; without this
    switch all ranks would then drop the same units. `shard` is this rank unless a rank holds other shards.
    Raises `ReproError` if `seed_everything` was not called.
    """
    seeding.seed_training(root_seed(), _shard(shard))


def generator(
    stream: str, device: str | torch.device = "cpu", *, shard: int | None = None, epoch: int = 0
) -> torch.Generator:
    """Return a new generator on `device` for the stream that you call `stream`, at its beginning.

    It depends on the root seed, the name, `shard` (this rank by default; pass 0 on all ranks for equal numbers) and
    `epoch`, and on nothing that was drawn before. Raises `ReproError` if `seed_everything` was not called.
    """
    sequence = seeding.named_sequence(root_seed(), stream, shard=_shard(shard), epoch=epoch)
    return torch.Generator(device=device).manual_seed(seeding.torch_seed(sequence))


def root_seed() -> int:
    """Return the seed that `seed_everything` was called with; raise `ReproError` if it was not called."""
    if _root is None:
        raise ReproError(
            "no root seed in this process", hint="call ddp_repro.seed_everything(seed) first, before the model is built"
        )
    return _root


def _shard(shard: int | None) -> int:
    return rank_and_world_size()[0] if shard is None else shard


def _live_model() -> str | None:
    """Return the class name of a live module whose parameters hold values, or None."""
    gc.collect()
    for candidate in gc.get_objects():
        # type() and not isinstance(): the latter asks proxies for their class, and a dead weak proxy raises.
        if issubclass(type(candidate), nn.Module) and _holds_values(candidate):
            return type(candidate).__name__
    return None


def _holds_values(module: nn.Module) -> bool:
    parameters = module.__dict__.get("_parameters") or {}
    return any(p is not None and not is_lazy(p) and not p.is_meta for p in parameters.values())
