"""The schemas of the commands that measure: how far seeds move a metric, and what determinism costs."""

from dataclasses import dataclass, field

from ddp_repro.config.choices import Better, Take
from ddp_repro.config.commands import CompareRules, PageConfig
from ddp_repro.config.launch import RecordConfig


@dataclass(kw_only=True)
class MetricConfig:
    """Where a launch's metric stands, once it has ended: one number.

    A built-in workload tells its own, and none of these is set. A script's is found by one of: ``regex`` in the log of
    ``rank``, whose first group is the number; ``key`` (dotted) in the lines of the file ``jsonl``; the scalars ``tag``
    in the folder ``tensorboard``. Of several values ``take`` says which one. In file and folder ``{out}`` is the
    launch's folder, ``{seed}`` its seed and ``{launch}`` its number.
    """

    better: Better | None = None
    take: Take = Take.last
    rank: int = 0
    regex: str | None = None
    jsonl: str | None = None
    key: str | None = None
    tensorboard: str | None = None
    tag: str | None = None


@dataclass(kw_only=True)
class SpreadOptions:
    """How a spread is judged.

    ``repeats`` launches are made with the first seed. ``confidence`` is that of every interval, and 1 less the share of
    false claims. ``power``: how often an effect is to be seen that counts as one that could be seen. ``baseline`` is an
    earlier run's folder, to which this run is held.
    """

    repeats: int = 2
    confidence: float = 0.95
    power: float = 0.8
    baseline: str | None = None


@dataclass(kw_only=True)
class SpreadConfig(RecordConfig):
    """The same training with several seeds; with ``candidate`` (overrides) a second one with the same seeds."""

    seeds: list[int] = field(default_factory=list)
    candidate: list[str] = field(default_factory=list)
    metric: MetricConfig = field(default_factory=MetricConfig)
    spread: SpreadOptions = field(default_factory=SpreadOptions)
    compare: CompareRules = field(default_factory=CompareRules)
    report: PageConfig = field(default_factory=PageConfig)


@dataclass(kw_only=True)
class CostOptions:
    """What is timed: the command's own determinism against profile ``against``, and each switch between them alone.

    Each is launched ``repeats`` times, in turns; of a launch ``warmup`` steps are left out and ``steps`` are timed.
    ``confidence`` is that of every interval.
    """

    against: str = "debug"
    switches: bool = True
    repeats: int = 6
    warmup: int = 10
    steps: int = 50
    confidence: float = 0.95


@dataclass(kw_only=True)
class CostConfig(RecordConfig):
    """The same training under two determinism profiles, timed in turns."""

    cost: CostOptions = field(default_factory=CostOptions)
    report: PageConfig = field(default_factory=PageConfig)
