"""The schema of `bisect`: the suspects, how each of them is switched off, and how hard is looked."""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from ddp_repro.config.commands import CompareRules, JudgeConfig, PageConfig
from ddp_repro.config.launch import RecordConfig
from ddp_repro.errors import ReproError


class SearchStrategy(Enum):
    """Suspects off one after the other, or halves of them."""

    order = "order"
    ddmin = "ddmin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A suspect: what switches it off, and what it costs to keep off.

    ``overrides`` switch it off; of a script, ``args`` are arguments that are added, ``drop`` those that are taken out.
    """

    overrides: tuple[str, ...] = ()
    args: str = ""
    drop: str = ""
    cost: str = ""


def read_factor(name: str, given: object) -> Factor:
    """Return the suspect that ``bisect.factors.<name>`` describes; raise ``ReproError`` where that is none."""
    key = f"bisect.factors.{name}"
    keys = [one.name for one in fields(Factor)]
    example = f"'{key}.args=\"--workers 0\"'"
    if not isinstance(given, dict) or not all(one in keys for one in given):
        raise ReproError(f"{key}={given} is no suspect.", hint=f"Its keys are {', '.join(keys)}: {example}")
    overrides = given.get("overrides", [])
    texts = {one: given.get(one, "") for one in ("args", "drop", "cost")}
    if not isinstance(overrides, list) or not all(isinstance(one, str) for one in (*overrides, *texts.values())):
        raise ReproError(
            f"{key}={given} is no suspect.", hint=f"overrides is a list of texts, the others are texts: {example}"
        )
    if not (overrides or texts["args"] or texts["drop"]):
        raise ReproError(
            f"{key} names nothing that switches it off.", hint=f"Give it overrides or arguments: {example}"
        )
    return Factor(overrides=tuple(overrides), **texts)


@dataclass(kw_only=True)
class BisectOptions:
    """The suspects by name, in the order in which they are switched off, and those to leave alone (``skip``).

    Launches with nothing off are made until they diverge, ``first`` at most; all launches together are ``most`` at
    most. ``confidence`` is how sure the result is to be.
    """

    factors: dict[str, Any] = field(default_factory=dict)
    skip: list[str] = field(default_factory=list)
    strategy: SearchStrategy = SearchStrategy.order
    confidence: float = 0.95
    first: int = 10
    most: int = 200


@dataclass(kw_only=True)
class BisectConfig(RecordConfig):
    """A training whose launches diverge, and what may be the reason. ``launches``: at least so many an outcome."""

    launches: int = 3
    bisect: BisectOptions = field(default_factory=BisectOptions)
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)
