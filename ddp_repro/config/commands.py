"""The schemas of the commands that judge: what they launch, or read, and by which rules."""

from dataclasses import dataclass, field
from typing import Any

from ddp_repro.config.choices import GoldenLevel, Stop
from ddp_repro.config.launch import OutputConfig, RecordConfig


@dataclass(kw_only=True)
class CompareRules:
    """Identity fields (dotted) that may differ between compared launches."""

    allow: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class JudgeConfig:
    """What no witness looks at: globs on the names of observations (``*.running_mean``, ``buffer:*.codebook``)."""

    ignore: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class PageConfig:
    """The verdict in pictures: whether ``report.html`` is written, and opened in a browser afterwards."""

    html: bool = True
    open: bool = False


@dataclass(kw_only=True)
class GoldenConfig:
    """The folder of goldens that a launch is held against, how much a new one keeps, and whether to write over one."""

    path: str | None = None
    level: GoldenLevel = GoldenLevel.step
    accept: bool = False


@dataclass(kw_only=True)
class CheckConfig(RecordConfig):
    """Repeated launches of the same thing, and the rules by which they are judged.

    ``twins`` holds lists of overrides: variants that must not differ. ``launches`` None is 2, or 1 for each variant and
    for what is held against a golden. ``second_look`` has a step in which launches part launched again, to find the
    operator. ``fail_fast`` has a launch ended soon after it differs from an earlier one; None is true where that one
    made more than 50 steps.
    """

    launches: int | None = None
    twins: list[list[str]] = field(default_factory=list)
    second_look: bool = True
    fail_fast: bool | None = None
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)
    golden: GoldenConfig = field(default_factory=GoldenConfig)

    @property
    def launches_each(self) -> int:
        """Return the number of launches, of each variant where there are variants."""
        return self.launches if self.launches is not None else (1 if self.twins or self.golden.path else 2)


@dataclass(kw_only=True)
class ResumeOptions:
    """Where a training is stopped and restarted, counted in optimizer steps.

    ``at`` holds steps, and lists of steps for several stops one after the other; empty: points that the epochs tell.
    ``every``: with ``stop=kill``, the steps between two checkpoints. A script gets ``save_args`` where it is to be
    stopped, and ``load_args`` where it goes on; in both, ``{checkpoint}`` is a path and ``{step}`` the step at which it
    is stopped. ``stop_after`` is that step for a script that does not take it.
    """

    at: list[Any] = field(default_factory=list)
    stop: Stop = Stop.clean
    every: int | None = None
    stop_after: int | None = None
    save_args: str = ""
    load_args: str = ""


@dataclass(kw_only=True)
class ResumeConfig(RecordConfig):
    """A training that is never stopped, and the same one stopped and restarted."""

    resume: ResumeOptions = field(default_factory=ResumeOptions)
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)


@dataclass(kw_only=True)
class CompareConfig:
    """Recorded runs to judge against each other."""

    runs: list[str] = field(default_factory=list)
    level: str = "same-stack"
    compare: CompareRules = field(default_factory=CompareRules)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    report: PageConfig = field(default_factory=PageConfig)
    output: OutputConfig = field(default_factory=OutputConfig)


@dataclass(kw_only=True)
class RetellConfig:
    """The run whose ``report.html`` is made again from its files."""

    run: str = ""
    report: PageConfig = field(default_factory=PageConfig)
