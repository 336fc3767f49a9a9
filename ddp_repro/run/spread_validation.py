"""What the configuration of `spread` must hold beyond its types."""

from typing import Final

from ddp_repro.config import SpreadConfig, is_script
from ddp_repro.errors import ReproError
from ddp_repro.run.metric import validate_metric
from ddp_repro.run.trials import refuse_unreachable

_MOST: Final = 1_000
_SHARED: Final = ("seed", "seeds", "metric", "spread", "output", "compare", "report", "candidate", "seeding")


def validate_spread(config: SpreadConfig, candidate: SpreadConfig | None) -> None:
    """Raise ReproError for seeds of which no spread can be told, and for options that contradict each other."""
    _validate_seeds(config)
    options = config.spread
    if not 1 <= options.repeats <= _MOST:
        raise ReproError(f"spread.repeats={options.repeats} is not possible.", hint="Use 1 or more launches a seed.")
    for key, share, usual in (("confidence", options.confidence, 0.95), ("power", options.power, 0.8)):
        if not 0.5 <= share <= 0.999:
            raise ReproError(
                f"spread.{key}={share} is not possible.", hint=f"Use a share from 0.5 to 0.999: spread.{key}={usual}"
            )
    if options.baseline and config.candidate:
        raise ReproError(
            "candidate and spread.baseline are both given.",
            hint="Hold a run to a baseline, or compare it with a candidate: one question at a time.",
        )
    for one in (config, candidate):
        if one is not None:
            validate_metric(one.metric, one)
            refuse_unreachable(one)
            _refuse_checkpoints(one)
    if candidate is None:
        return
    _refuse_shared(config, candidate)
    if is_script(config) and config.metric.better is None:
        raise ReproError(
            "nothing says which way the script's metric is better, so no candidate can be called so.",
            hint="Add metric.better=higher or metric.better=lower.",
        )


def _validate_seeds(config: SpreadConfig) -> None:
    seeds = config.seeds
    twice = next((seed for at, seed in enumerate(seeds) if seed in seeds[:at]), None)
    if twice is not None:
        raise ReproError(
            f"seeds names {twice} twice: the same seed again is no other seed.",
            hint="Name each once; spread.repeats launches the first one again, to tell what the same seed gives.",
        )
    for seed in seeds:
        if not 0 <= seed < 2**63:
            raise ReproError(f"seeds holds {seed}, which is not possible.", hint="Use seeds from 0 to 2**63 - 1.")
    if len(seeds) > _MOST:
        raise ReproError(f"seeds names {len(seeds):,} seeds.", hint=f"Name {_MOST:,} at most.")
    if not seeds or (len(seeds) == 1 and not config.spread.baseline):
        raise ReproError(
            f"{'one seed shows' if seeds else 'no seed shows'} no spread.",
            hint="Give three or more, better six: seeds=[1,2,3,4,5,6]",
        )
    if config.seed != 0:
        raise ReproError(
            f"seed={config.seed} does nothing here.", hint=f"Name it among the seeds: seeds=[{config.seed},…]"
        )


def _refuse_checkpoints(config: SpreadConfig) -> None:
    if config.checkpoint.load or config.checkpoint.dir or config.checkpoint.stop:
        raise ReproError(
            "checkpoint.* would have every seed go on from one training, or write over another one's.",
            hint="Leave checkpoint.* out.",
        )


def _refuse_shared(config: SpreadConfig, candidate: SpreadConfig) -> None:
    for key in _SHARED:
        if key != "candidate" and getattr(config, key) != getattr(candidate, key):
            raise ReproError(
                f"the candidate changes {key}, which both arms share.",
                hint="Leave it out of the candidate; set it for the whole run.",
            )
