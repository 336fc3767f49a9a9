"""How far a training is, and what came back of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ddp_repro.errors import ReproError


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is.

    ``step``: optimizer steps done; ``epoch``: the epoch under way, from 0; ``position``: batches of this epoch that a
    rank was already trained on.
    """

    step: int
    epoch: int
    position: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise ReproError(
                    f"progress.{field.name}={value!r} is no count",
                    hint="give whole numbers from 0: step, epoch, position",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What ``load_checkpoint`` brought back beside the state of the objects that it was given.

    ``values``: extras that were saved as plain values. ``not_exact``: the fields that differed and were allowed to;
    empty where training goes on in the same bits.
    """

    progress: Progress
    values: Mapping[str, Any]
    not_exact: tuple[str, ...]
    rng: Callable[[], None]

    def restore_rng(self) -> None:
        """Put the global random states back once more: making a loader's iterator draws from them."""
        self.rng()
