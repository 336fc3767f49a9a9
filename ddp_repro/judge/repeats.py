"""How many launches it takes to say that they do not diverge, from how often they were seen to.

The model: a launch gives the usual bits with some probability, and otherwise bits of its own. Of that probability only
what was seen is known. Before it rare divergence is held to be the more probable, as Jeffreys has it: were each rate as
probable as any other, less confidence than is stated would be left where the rate is low (measured at 15 % and below).
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MOST: Final = 10_000
_GRID: Final = (np.arange(400) + 0.5) / 400
"""The probabilities that are summed over."""
_BEFORE: Final = (1.0 - _GRID) ** -0.5
"""How probable each of them is held to be before the first launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Launches of one thing that diverged: how many, and how many of them at most gave the same bits.

    With ``alike`` 1 no two were equal, so that one of them or none may have given the usual bits; it is 0 where each of
    them shows a fault by itself, as a broken invariant does.
    """

    launches: int
    alike: int

    @property
    def shown(self) -> int:
        """In how many it showed at least: where no two were equal, one of them may have given the usual bits."""
        return self.launches - self.alike


def shown(samples: Iterable[Sample]) -> tuple[int, int]:
    """Return in how many launches a divergence showed at least, and of how many."""
    seen = list(samples)
    return sum(sample.shown for sample in seen), sum(sample.launches for sample in seen)


def unseen(samples: Sequence[Sample], launches: int) -> float:
    """Return how probable it is that a divergence as frequent as in ``samples`` does not show in so many launches."""
    weights = functools.reduce(np.multiply, (_likelihood(sample) for sample in samples), _BEFORE)
    return float((weights * _GRID**launches).sum() / weights.sum())


def repeats(samples: Sequence[Sample], allowed: float) -> int:
    """Return the least number of launches in which the divergence goes unseen with probability ``allowed`` at most."""
    launches, most = 1, 2
    while unseen(samples, most) > allowed and most < MOST:
        launches, most = most, 2 * most
    while launches < most:
        middle = (launches + most) // 2
        if unseen(samples, middle) <= allowed:
            most = middle
        else:
            launches = middle + 1
    return most


def rarest(launches: int, allowed: float) -> float:
    """Return the rate of the rarest divergence that shows in so many launches but for a probability of ``allowed``."""
    return float(1.0 - allowed ** (1.0 / launches))


@functools.lru_cache(maxsize=1024)
def _likelihood(sample: Sample) -> NDArray[Any]:
    """Return how probable a sample is, for each probability with which a launch may give the usual bits."""
    off = 1.0 - _GRID
    if sample.alike != 1:
        return _GRID**sample.alike * off ** (sample.launches - sample.alike)
    return off**sample.launches + sample.launches * _GRID * off ** (sample.launches - 1)
